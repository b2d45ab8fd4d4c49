// The unmodified JavaScript SDK of the code interpreter: cells, contexts, rich results and what ends a cell.
import assert from 'node:assert/strict'
import { NotFoundError, Sandbox, TimeoutError } from '@e2b/code-interpreter'

const box = await Sandbox.create({ timeoutMs: 120_000, envs: { BOX: 'a' } })
const seen = []
const first = await box.runCode("import os\nprint(os.environ['BOX'] + os.environ['CELL'])\nx = 41\nx + 1", {
  envs: { CELL: 'b' },
  onStdout: (message) => seen.push(message.line),
  onResult: (result) => seen.push(result.text),
})
assert.deepEqual([first.text, first.executionCount, seen], ['42', 1, ['ab\n', '42']])
const failed = await box.runCode('1 / 0', { onError: (error) => seen.push(error.name) })
assert.deepEqual([failed.error.name, seen.at(-1)], ['ZeroDivisionError', 'ZeroDivisionError'])

const context = await box.createCodeContext({ cwd: '/tmp' })
assert.deepEqual([context.language, context.cwd], ['python', '/tmp'])
assert.equal((await box.runCode("'x' in globals()", { context })).text, 'False')
assert.equal((await box.listCodeContexts()).length, 2)
await box.restartCodeContext(context)
await box.removeCodeContext(context)
await assert.rejects(box.runCode('1', { context }), NotFoundError)

await assert.rejects(box.runCode('while True: pass', { timeoutMs: 500 }), TimeoutError)
assert.equal((await box.runCode('x')).text, '41')
setTimeout(() => box.kill(), 500)
await assert.rejects(box.runCode('while True: pass'))
console.log('all of it')
process.exit(0) // else the SDK's timers of 60 s keep it
