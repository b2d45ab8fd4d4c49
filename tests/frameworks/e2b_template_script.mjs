// What the unmodified JavaScript SDK of E2B does with templates: it builds them, and creates sandboxes from them.

import assert from 'node:assert/strict'
import { mkdtempSync, writeFileSync } from 'node:fs'
import { BuildError, Sandbox, Template, waitForFile } from 'e2b'

const context = mkdtempSync(`${process.env.HOME}/context-`)
writeFileSync(`${context}/data`, 'copied')
const logged = []
const template = Template({ fileContextPath: context })
  .fromImage(process.env.SANDLOT_SCRIPT_IMAGE)
  .setEnvs({ ANSWER: '42' })
  .copy('data', '/srv/data')
  .runCmd('echo seen')
  .setStartCmd('touch /tmp/started; sleep 1000', waitForFile('/tmp/started'))
await Template.build(template, 'js', { tags: ['v1'], onBuildLogs: (entry) => logged.push(entry.message) })
assert(logged.includes('seen'), logged.join('\n'))
assert.equal(await Template.exists('js'), true)
await Template.assignTags('js:v1', ['default'])
assert.deepEqual((await Template.getTags('js')).map((each) => each.tag).sort(), ['default', 'v1'])
const box = await Sandbox.create('js', { timeoutMs: 60_000 })
assert.equal((await box.commands.run('cat /srv/data; echo " $ANSWER"; ls /tmp/started')).stdout, 'copied 42\n/tmp/started\n')
await box.kill()
const broken = Template().fromTemplate('js').runCmd('exit 3')
await assert.rejects(Template.build(broken, 'broken'), (error) => error instanceof BuildError && /exit code 3/.test(error.message))
console.log('all of it')
