// What the unmodified JavaScript SDK of E2B does here: commands, files, watches, terminals, lists and ends.

import assert from 'node:assert/strict'
import { CommandExitError, Sandbox } from 'e2b'

const box = await Sandbox.create({ timeoutMs: 120_000, metadata: { kind: 'js' }, envs: { HOME: '/tmp' } })
assert(await box.isRunning())
const done = await box.commands.run('echo out; echo err >&2')
assert.deepEqual([done.exitCode, done.stdout, done.stderr], [0, 'out\n', 'err\n'])
await assert.rejects(box.commands.run('exit 3'), (error) => error instanceof CommandExitError && error.exitCode === 3)
await assert.rejects(box.commands.run('sleep 60', { timeoutMs: 1000 }), { name: 'TimeoutError' })

await box.files.write('/tmp/js/a', 'text')
assert.equal(await box.files.read('/tmp/js/a'), 'text')
await box.files.write([{ path: '/tmp/js/b', data: 'b' }, { path: '/tmp/js/c', data: 'c' }])
assert.deepEqual((await box.files.list('/tmp/js')).map((entry) => entry.name), ['a', 'b', 'c'])
await assert.rejects(box.files.read('/tmp/none'), { name: 'FileNotFoundError' })
const watched = Promise.withResolvers?.() ?? defer()
const watch = await box.files.watchDir('/tmp/js', watched.resolve)
await box.files.write('/tmp/js/d', 'd')
assert.deepEqual((await watched.promise).name, 'd')
await watch.stop()

const cat = await box.commands.run('cat', { background: true, stdin: true })
await box.commands.sendStdin(cat.pid, 'typed\n')
await box.commands.closeStdin(cat.pid)
assert.equal((await cat.wait()).stdout, 'typed\n')

let seen = ''
const pty = await box.pty.create({ cols: 80, rows: 24, onData: (data) => { seen += Buffer.from(data).toString() } })
await box.pty.resize(pty.pid, { cols: 100, rows: 30 })
await box.pty.sendInput(pty.pid, new TextEncoder().encode('stty size; exit\n'))
await pty.wait()
assert(seen.includes('30 100'), seen)

assert.equal((await Sandbox.list({ query: { metadata: { kind: 'js' } } }).nextItems()).length, 1)
await box.setTimeout(300_000)
assert.equal((await box.getInfo()).state, 'running')
await box.pause()
assert.equal((await box.getInfo()).state, 'paused')
await box.connect()
assert.equal(await box.files.read('/tmp/js/a'), 'text')
assert.equal(await box.kill(), true)
assert.equal(await box.kill(), false)
await assert.rejects(box.commands.run('true'))
console.log('all of it')

function defer() {
  const made = {}
  made.promise = new Promise((resolve) => { made.resolve = resolve })
  return made
}
