// A sandbox, a command with its output, a file, input and a cell by a JavaScript SDK of E2B: PACKAGE.
import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'

const { Sandbox } = await import(process.argv[2])
const box = await Sandbox.create({ timeoutMs: 120_000, envs: { HOME: '/tmp' } })
assert(await box.isRunning())
let lines = ''
const done = await box.commands.run('echo out; echo err >&2; pwd', { cwd: '/tmp', onStdout: (data) => { lines += data } })
assert.deepEqual([done.stdout, done.stderr, lines], ['out\n/tmp\n', 'err\n', 'out\n/tmp\n'])
const large = randomBytes(1 << 20)
await box.files.write('/tmp/transport/large', new Blob([large]))
assert(large.equals(Buffer.from(await box.files.read('/tmp/transport/large', { format: 'bytes' }))))
const cat = await box.commands.run('cat', { background: true, stdin: true })
await box.commands.sendStdin(cat.pid, 'typed\n')
await box.commands.closeStdin(cat.pid)
assert.equal((await cat.wait()).stdout, 'typed\n')
if (box.runCode) {
  const cell = await box.runCode("print('shown')\n6 * 7")
  assert.deepEqual([cell.text, cell.logs.stdout], ['42', ['shown\n']])
}
assert(await box.kill())
assert.equal(await box.isRunning(), false)
console.log(`${process.env.E2B_SANDBOX_URL}: all of it`)
process.exit(0) // else the SDK's timers of 60 s keep it
