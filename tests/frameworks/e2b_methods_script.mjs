// Calls every method of E2B's unmodified JavaScript SDKs that works here. Prints the names of what it called.

import assert from 'node:assert/strict'
import * as sdk from '@e2b/code-interpreter'
import { called, noted } from './e2b_calls.mjs'
import { templates } from './e2b_templates_part.mjs'

const Sandbox = noted(sdk.Sandbox, 'Sandbox')
const E2B = noted(sdk.E2B, 'E2B')
const getSignature = noted(sdk.getSignature, 'getSignature')
const envs = { HOME: '/tmp' }

async function sandboxes() {
  const box = await Sandbox.create({ timeoutMs: 120_000, metadata: { run: 'every js' }, envs })
  assert(await box.isRunning())
  await box.setTimeout(600_000)
  assert((await box.getInfo()).endAt - Date.now() > 500_000)
  assert.equal((await Sandbox.getFullInfo(box.sandboxId)).sandboxId, box.sandboxId)
  assert((await box.getMetrics()).every((each) => each.cpuCount === 1))
  const client = new E2B({ apiKey: process.env.E2B_API_KEY })
  const listed = await client.Sandbox.list({ query: { metadata: { run: 'every js' } } }).nextItems()
  assert.deepEqual(listed.map((each) => each.sandboxId), [box.sandboxId])
  await (await Sandbox.connect(box.sandboxId)).files.write('/srv/state', '1')

  const url = await box.downloadUrl('/srv/state')
  const asked = { path: '/srv/state', operation: 'read', user: undefined, envdAccessToken: box.envdAccessToken }
  assert(url.includes(encodeURIComponent((await getSignature(asked)).signature)), url)
  assert.equal(await (await fetch(url)).text(), '1')
  const headers = { 'Content-Type': 'application/octet-stream' }
  assert((await fetch(await box.uploadUrl('/srv/state'), { method: 'POST', headers, body: '2' })).ok)
  assert.equal(await (await fetch(`https://${box.getHost(49983)}/files?${url.split('?')[1]}`)).text(), '2')

  const taken = await box.createSnapshot()
  assert.deepEqual((await box.listSnapshots().nextItems()).map((each) => each.snapshotId), [taken.snapshotId])
  const copy = await Sandbox.create(taken.snapshotId)
  assert.equal(await copy.files.read('/srv/state'), '2')
  await copy.kill()
  assert(await Sandbox.deleteSnapshot(taken.snapshotId))
  const [fork] = await box.fork({ count: 1, timeoutMs: 60_000 })
  assert.equal(await fork.files.read('/srv/state'), '2')
  await fork.kill()
  await box.pause()
  assert.equal((await box.getInfo()).state, 'paused')
  await box.connect()
  await box.betaPause()
  await box.connect()
  assert.equal(await box.files.read('/srv/state'), '2')
  assert.equal(await box.kill(), true)
}

async function timeouts() {
  const box = await Sandbox.create({ timeoutMs: 600_000, lifecycle: { onTimeout: 'pause' }, envs })
  await box.files.write('/srv/state', '1')
  await box.setTimeout(1000)
  while ((await box.getInfo()).state === 'running') await new Promise((resolve) => setTimeout(resolve, 100))
  await box.connect()
  assert.equal(await box.files.read('/srv/state'), '1')
  await box.kill()
}

async function networks() {
  const peer = process.env.SANDLOT_SCRIPT_PEER
  const program = `import socket; socket.create_connection(('${peer}', 80), 5)`
  const box = await Sandbox.create({ network: { denyOut: [`${peer}/32`] }, envs })
  const expect = async (outcome) => {
    const command = `python3 -c "${program}" 2>/dev/null && echo reached || echo denied`
    assert.equal((await box.commands.run(command)).stdout, `${outcome}\n`)
  }
  await expect('denied')
  await box.updateNetwork({ allowOut: [peer], denyOut: ['0.0.0.0/0'] })
  await expect('reached')
  await box.updateNetwork({ allowInternetAccess: false })
  await expect('denied')
  await box.kill()
  for (const [field, options] of [
    ['mcp', { mcp: { time: {} } }],
    ['iam', { iam: { tokens: { aws: { audience: 'a' } } } }],
    ['volumeMounts', { volumeMounts: { '/data': 'a-volume' } }],
    ['autoResume', { lifecycle: { onTimeout: 'pause', autoResume: true } }],
    ['httpsPorts', { network: { httpsPorts: [8443] } }],
  ]) {
    await assert.rejects(Sandbox.create(options), (error) => error.message.includes(field), field)
  }
}

async function commands(box) {
  const cat = await box.commands.run('cat; echo over', { background: true, stdin: true })
  await box.commands.sendStdin(cat.pid, 'one\n')
  await cat.sendStdin('two\n')
  assert((await box.commands.list()).some((each) => each.pid === cat.pid))
  await cat.closeStdin()
  assert.equal((await cat.wait()).stdout, 'one\ntwo\nover\n')
  const waiting = await box.commands.run('read line; echo got $line', { background: true, stdin: true })
  await waiting.disconnect()
  const again = await box.commands.connect(waiting.pid)
  await box.commands.closeStdin(waiting.pid)
  assert.equal((await again.wait()).stdout, 'got\n')
  const [first, second] = [await sleeping(box), await sleeping(box)]
  assert(await first.kill())
  assert(await box.commands.kill(second.pid))
  for (const each of [first, second]) await assert.rejects(each.wait(), { name: 'CommandExitError' })
}

function sleeping(box) {
  return box.commands.run('sleep 300', { background: true })
}

async function files(box) {
  await box.files.write('/srv/files/a', 'text')
  await box.files.writeFiles([{ path: '/srv/files/b', data: 'b' }, { path: '/srv/files/c', data: 'c' }])
  assert.equal(await box.files.read('/srv/files/b'), 'b')
  assert(await box.files.makeDir('/srv/files/more'))
  await box.files.rename('/srv/files/c', '/srv/files/more/c')
  assert(await box.files.exists('/srv/files/more/c'))
  await box.files.remove('/srv/files/b')
  assert.deepEqual((await box.files.list('/srv/files')).map((each) => each.name), ['a', 'more'])
  assert.equal((await box.files.getInfo('/srv/files/a')).size, 4)
  let seen
  const event = new Promise((resolve) => { seen = resolve })
  const watch = await box.files.watchDir('/srv/files/more', seen)
  await box.files.remove('/srv/files/more/c')
  assert.deepEqual([(await event).type, (await event).name], ['remove', 'c'])
  await watch.stop()
}

async function terminals(box) {
  let seen = ''
  const onData = (data) => { seen += Buffer.from(data).toString() }
  const begun = await box.pty.create({ cols: 80, rows: 24, onData })
  await begun.disconnect()
  const pty = await box.pty.connect(begun.pid, { onData })
  await box.pty.resize(pty.pid, { cols: 101, rows: 30 })
  await box.pty.sendInput(pty.pid, new TextEncoder().encode('stty size; exit\n'))
  await pty.wait()
  assert(seen.includes('30 101'), seen)
  const other = await box.pty.create({ cols: 80, rows: 24, onData })
  assert(await box.pty.kill(other.pid))
}

async function git(box) {
  await box.commands.run('command -v git') // rejects where the image has none
  await box.git.configureUser('Sam', 'sam@example.org')
  await box.git.setConfig('init.defaultBranch', 'main')
  assert.equal(await box.git.getConfig('init.defaultBranch'), 'main')
  await box.git.init('/srv/origin', { bare: true })
  const work = '/srv/work'
  await box.git.clone('/srv/origin', { path: work })
  await box.files.write(`${work}/a`, '1')
  assert((await box.git.status(work)).hasUntracked)
  await box.git.add(work)
  await box.git.commit(work, 'first')
  await box.git.push(work, { remote: 'origin', branch: 'main' })
  await box.git.createBranch(work, 'side')
  await box.git.checkoutBranch(work, 'main')
  assert.deepEqual((await box.git.branches(work)).branches.sort(), ['main', 'side'])
  await box.git.deleteBranch(work, 'side', { force: true })
  await box.files.write(`${work}/a`, '2')
  await box.git.add(work, { files: ['a'] })
  await box.git.restore(work, { paths: ['a'], staged: true })
  assert.equal((await box.git.status(work)).hasStaged, false)
  await box.git.reset(work, { mode: 'hard' })
  assert.equal(await box.files.read(`${work}/a`), '1')
  await box.git.clone('/srv/origin', { path: '/srv/other' })
  await box.files.write('/srv/other/b', '2')
  await box.git.add('/srv/other')
  await box.git.commit('/srv/other', 'second')
  await box.git.push('/srv/other')
  await box.git.pull(work)
  assert.equal(await box.files.read(`${work}/b`), '2')
  await box.git.remoteAdd(work, 'spare', '/srv/other')
  assert.equal(await box.git.remoteGet(work, 'spare'), '/srv/other')
  await box.git.dangerouslyAuthenticate({ username: 'sam', password: 'a-token', host: 'git.example.org' })
  assert((await box.files.read('/tmp/.git-credentials')).includes('sam:a-token@git.example.org'))
}

async function cells(box) {
  assert.equal((await box.runCode('x = 41; x + 1')).text, '42')
  const context = await box.createCodeContext({ cwd: '/tmp' })
  assert.equal((await box.runCode("'x' in globals()", { context })).text, 'False')
  const lines = []
  const onStdout = (message) => lines.push(message.line)
  const shown = "print('first')\nclass Shown:\n  def _repr_html_(self): return '<b>'\nShown()"
  const ended = await box.runCode(shown, { onStdout })
  assert.deepEqual(lines, ['first\n'])
  assert.deepEqual(ended.toJSON().logs, { stdout: ['first\n'], stderr: [] })
  assert.deepEqual([ended.results[0].formats(), ended.results[0].toJSON().html], [['html'], '<b>'])
  assert((await box.listCodeContexts()).some((each) => each.id === context.id))
  await box.restartCodeContext(context)
  await box.removeCodeContext(context)
  assert.deepEqual((await box.listCodeContexts()).map((each) => each.id), ['default'])
}

await sandboxes()
await timeouts()
await networks()
const shared = await Sandbox.create({ timeoutMs: 300_000, envs })
for (const part of [commands, files, terminals, git, cells]) await part(shared)
await shared.kill()
await templates(sdk, Sandbox)
console.log(JSON.stringify([...called].sort()))
process.exit(0) // else the SDK's timers of 60 s keep it
