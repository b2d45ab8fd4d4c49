// Loaded by scripts with the SDK of E2B for JavaScript: notes which methods a script has called without an error.
// A script has proxies in place of the SDK's objects; the SDK has its own objects, so its own calls are not noted.

const NAMES = {
  Sandbox: 'Sandbox',
  Commands: 'commands',
  CommandHandle: 'handle',
  Filesystem: 'files',
  WatchHandle: 'watch',
  Pty: 'pty',
  Git: 'git',
  SandboxPaginator: 'SandboxPaginator',
  SnapshotPaginator: 'SnapshotPaginator',
  ReadyCmd: 'ReadyCmd',
  Execution: 'Execution',
  Result: 'Result',
}
const originals = new WeakMap()
const begun = new WeakSet() // templates that have a base
export const called = new Set()

/** A stand-in for an object or class of the SDK, or for what a function of it returns. */
export function noted(value, name = undefined) {
  const kind = name ?? nameOf(value)
  if (kind === undefined) return Array.isArray(value) ? value.map((each) => noted(each)) : value
  const proxy = new Proxy(value, {
    get(target, key) {
      const found = Reflect.get(target, key, target)
      if (typeof found !== 'function' || typeof key === 'symbol' || key === 'constructor') return noted(found)
      const method = kind === 'template' ? `${begun.has(target) ? 'builder' : 'Template'}.${key}` : `${kind}.${key}`
      return (...given) => returned(method, found.apply(target, given.map(original)), target)
    },
    apply(target, self, given) {
      return returned(kind, target(...given.map(original)))
    },
    construct(target, given) {
      called.add(kind)
      const made = new target(...given.map(original))
      return new Proxy(made, { get: (client, key) => noted(client[key], String(key)) })
    },
  })
  originals.set(proxy, value)
  return proxy
}

function nameOf(value) {
  if (value === null || typeof value !== 'object') return undefined
  if ('fromImage' in value) return 'template'
  return NAMES[value.constructor?.name]
}

function original(given) {
  return originals.get(given) ?? given
}

function returned(method, result, target) {
  if (result instanceof Promise) return result.then((value) => returned(method, value, target))
  called.add(method)
  if (method.startsWith('Template.from')) begun.add(result)
  return noted(result)
}
