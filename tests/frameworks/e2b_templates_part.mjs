// A part of e2b_methods_script.mjs: calls every method of template builds that works here.
// The operator's aliases give the bases their names. Stubs stand for the package managers: a file has what they were told.

import assert from 'node:assert/strict'
import { mkdtempSync, writeFileSync } from 'node:fs'
import { noted } from './e2b_calls.mjs'

const IMAGE = process.env.SANDLOT_SCRIPT_IMAGE
const STUBS = `set -e; mkdir -p /opt/repository /opt/bin; : > /opt/told
for each in apt-get pip npm bun; do
  printf '#!/bin/sh\\necho "$(id -un) %s $*" >> /opt/told\\n' $each > /opt/bin/$each; chmod 755 /opt/bin/$each
done
cd /opt/repository; git init -q; git -c user.name=a -c user.email=a@b commit -q --allow-empty -m first`
const TOLD = `root apt-get update
root apt-get install -y curl
root pip install numpy
root npm install -g typescript
root bun install hono
`
let Template, Sandbox, wait, defaultBuildLogger

/** `sdk` is the SDK's module, `box` its class of sandboxes. */
export async function templates(sdk, box) {
  Template = noted(sdk.Template, 'Template')
  Sandbox = box
  defaultBuildLogger = noted(sdk.defaultBuildLogger, 'defaultBuildLogger')
  wait = (kind) => noted(sdk[`waitFor${kind}`], `waitFor${kind}`)
  await bases()
  await steps()
  await starts()
  await names()
}

async function bases() {
  const begun = {
    'debian:stable': Template().fromDebianImage('stable'),
    'ubuntu:24.04': Template().fromUbuntuImage('24.04'),
    'fedora:44': Template().fromFedoraImage('44'),
    'alpine:3.24': Template().fromAlpineImage('3.24'),
    'archlinux:latest': Template().fromArchImage('latest'),
    'python:3': Template().fromPythonImage('3'),
    'node:lts': Template().fromNodeImage('lts'),
    'oven/bun:latest': Template().fromBunImage('latest'),
    'e2bdev/base': Template().fromBaseImage(),
  }
  for (const [image, template] of Object.entries(begun)) {
    assert.equal(JSON.parse(await Template.toJSON(template)).fromImage, image)
    const name = `js-on-${image.replace(/[^a-z]/g, '-')}`
    await Template.build(template.runCmd('true'), name)
    assert(await Template.exists(name))
  }
}

async function steps() {
  const context = mkdtempSync(`${process.env.HOME}/context-`)
  for (const name of ['one', 'two', 'three']) writeFileSync(`${context}/${name}`, name)
  writeFileSync(`${context}/Dockerfile`, `FROM ${IMAGE}\nENV FILE=docker\nUSER root\n`)
  const made = Template({ fileContextPath: context })
    .fromDockerfile(`${context}/Dockerfile`)
    .runCmd(STUBS)
    .setEnvs({ MORE: 'env', PATH: '/opt/bin:/usr/bin:/bin' })
    .setWorkdir('/opt')
    .setUser('root')
    .copy('one', '/opt/one')
    .copyItems([{ src: 'two', dest: '/opt/two' }, { src: 'three', dest: '/opt/three' }])
    .makeDir('/opt/made', { mode: 0o700 })
    .makeSymlink('/opt/one', '/opt/link')
    .rename('/opt/two', '/opt/renamed')
    .remove('/opt/three')
    .gitClone('/opt/repository', '/opt/clone')
    .aptInstall('curl')
    .pipInstall('numpy')
    .npmInstall('typescript', { g: true })
    .bunInstall('hono')
  assert(Template.toDockerfile(made).includes('WORKDIR /opt\n'))
  await Template.build(made, 'js-steps', { onBuildLogs: defaultBuildLogger() })
  const box = await Sandbox.create('js-steps', { timeoutMs: 60_000 })
  assert.equal((await box.commands.run('echo "$FILE $MORE $PWD $(id -un)"')).stdout, 'docker env /opt root\n')
  assert.equal((await box.commands.run("cat link renamed; stat -c ' %a' made")).stdout, 'onetwo 700\n')
  assert(await box.files.exists('/opt/clone/.git'))
  assert.equal(await box.files.exists('/opt/three'), false)
  assert.equal(await box.files.read('/opt/told'), TOLD)
  await box.kill()
}

async function starts() {
  const port = Number(process.env.SANDLOT_SCRIPT_PORT)
  const ready = [
    wait('File')('/tmp/begun'),
    wait('Process')('python3'),
    wait('Port')(port),
    wait('URL')(`http://127.0.0.1:${port}/`),
    wait('Timeout')(1000),
  ]
  const every = ready.map((each) => each.getCmd()).join(' && ')
  const serve = `touch /tmp/begun; exec python3 -m http.server ${port}`
  await Template.build(Template().fromImage(IMAGE).setStartCmd(serve, every), 'js-starts')
  const box = await Sandbox.create('js-starts', { timeoutMs: 60_000 })
  await box.commands.run(every)
  await box.kill()
  await Template.build(Template().fromImage(IMAGE).setReadyCmd('echo once >> /tmp/asked'), 'js-ready')
  const other = await Sandbox.create('js-ready', { timeoutMs: 60_000 })
  assert.equal(await other.files.read('/tmp/asked'), 'once\n')
  await other.kill()
}

async function names() {
  const runs = async (begun) => {
    const logged = []
    const onBuildLogs = (entry) => logged.push(entry.message)
    await Template.build(begun.runCmd('echo ran-$((6 * 7))'), 'js-names', { onBuildLogs })
    return logged.includes('ran-42')
  }
  assert(await runs(Template().fromImage(IMAGE)))
  assert(!(await runs(Template().fromImage(IMAGE))))
  assert(await runs(Template().skipCache().fromImage(IMAGE)))
  assert(await runs(Template().fromImage(IMAGE).skipCache()))
  const info = await Template.buildInBackground(Template().fromTemplate('js-names').runCmd('true'), 'js-names:upper')
  for (;;) {
    const { status } = await Template.getBuildStatus(info)
    if (status === 'ready') break
    assert(['building', 'waiting'].includes(status), status)
  }
  assert(await Template.aliasExists('js-names'))
  await Template.assignTags('js-names:upper', ['spare'])
  assert.equal((await Template.getTags('js-names')).length, 3)
  await Template.removeTags('js-names', 'spare')
  assert.equal((await Template.getTags('js-names')).length, 2)
}
