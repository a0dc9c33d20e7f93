// Talks to waldo e2b with E2B's own SDK, and prints a line for each operation. Arguments: the packages, the address.
import { createRequire } from 'node:module'
const [, , modules, url] = process.argv
const require = createRequire(modules + '/')
const { Sandbox } = require('@e2b/code-interpreter')
const options = { apiKey: process.env.KEY, apiUrl: url, sandboxUrl: url, requestTimeoutMs: 60_000 }
const wait = (ms) => new Promise((done) => setTimeout(done, ms))
async function until(what, ok) {
  for (let i = 0; i < 200; i++) {
    if (await ok()) return what
    await wait(50)
  }
  throw new Error('never: ' + what)
}
let failures = 0
async function op(name, f) {
  try {
    console.log(name, JSON.stringify(await f()))
  } catch (e) {
    failures++
    console.log(name, 'FAILED', e.constructor.name, e.message)
  }
}
const name = async (f) => {
  try {
    return await f()
  } catch (e) {
    return e.constructor.name
  }
}

let box, job, context, snapshot
await op('create', async () => {
  box = await Sandbox.create({
    ...options, timeoutMs: 300_000, metadata: { team: 'a' }, envs: { GLOBAL: '1' },
    network: { allowOut: ['packages.example.com'], denyOut: ['0.0.0.0/0'] }, lifecycle: { onTimeout: 'pause' },
  })
  return /^[a-z2-7]{26}$/.test(box.sandboxId)
})
await op('commands.run', async () =>
  (await box.commands.run('echo $GLOBAL $OWN; pwd; cd; pwd', { cwd: '/tmp', envs: { OWN: '2' }, timeoutMs: 60_000 })).stdout)
await op('commands.run fails', () => name(() => box.commands.run('echo no >&2; exit 3')))
await op('commands.run in background', async () => {
  job = await box.commands.run('read a; echo "got $a"; cat; sleep 300', { background: true, stdin: true, timeoutMs: 0 })
  return job.pid > 0
})
await op('commands.sendStdin', async () => {
  await box.commands.sendStdin(job.pid, 'word\n')
  return until('got', () => job.stdout === 'got word\n')
})
await op('commands.closeStdin', () => box.commands.closeStdin(job.pid).then(() => true))
await op('commands.list', async () => (await box.commands.list()).map((p) => [p.pid === job.pid, p.cmd]))
await op('commands.connect', async () => {
  const again = await box.commands.connect(job.pid)
  await again.disconnect()
  return again.pid === job.pid
})
await op('commands.kill', async () => [await box.commands.kill(job.pid), await name(() => job.wait()), await box.commands.kill(job.pid)])
await op('timeout', () => name(() => box.commands.run('sleep 60', { timeoutMs: 500 })))
await op('pty', async () => {
  let text = ''
  const p = await box.pty.create({ cols: 80, rows: 24, onData: (b) => (text += Buffer.from(b).toString()) })
  await box.pty.resize(p.pid, { cols: 91, rows: 31 })
  await box.pty.sendInput(p.pid, Buffer.from('stty size; exit\n'))
  await p.wait()
  return text.includes('31 91')
})
await op('files.write', async () => (await box.files.write('/home/user/a.txt', 'abc')).path)
await op('files.write many', async () =>
  (await box.files.write([{ path: '/tmp/a', data: '1' }, { path: 'sub/b', data: '2' }])).map((f) => f.path))
await op('files.write octets', async () => (await box.files.write('o.txt', 'octets', { useOctetStream: true })).path)
await op('files.write gzip', async () => (await box.files.write('z.txt', 'zipped', { gzip: true })).path)
await op('files.read', async () => [await box.files.read('a.txt'), await box.files.read('z.txt'), await name(() => box.files.read('none'))])
await op('files.list', async () => (await box.files.list('/home/user', { depth: 2 })).filter((f) => f.name[0] !== '.').map((f) => `${f.type} ${f.path} ${f.size && f.type === 'file' ? f.size : ''}`))
await op('files.exists', async () => [await box.files.exists('a.txt'), await box.files.exists('none')])
await op('files.getInfo', async () => {
  const f = await box.files.getInfo('a.txt')
  return [f.name, f.type, f.size, f.modifiedTime instanceof Date]
})
await op('files.makeDir', async () => [await box.files.makeDir('d'), await box.files.makeDir('d')])
await op('files.rename', async () => (await box.files.rename('a.txt', 'd/b.txt')).path)
await op('files and commands', async () => {
  const { stdout } = await box.commands.run('cat d/b.txt /tmp/a; echo made > made.txt; rm o.txt')
  return [stdout, await box.files.read('made.txt'), await box.files.exists('o.txt')]
})
await op('files and a running command', async () => {
  const h = await box.commands.run('echo early > early.txt; until [ -e late.txt ]; do sleep 0.1; done; cat late.txt', { background: true })
  await until('early', async () => (await box.files.exists('early.txt')) && (await box.files.read('early.txt')) === 'early\n')
  await box.files.write('late.txt', 'late\n')
  await box.files.remove('early.txt')
  return [(await h.wait()).stdout, await box.files.exists('early.txt')]
})
await op('files.remove', async () => {
  await box.files.remove('d')
  return box.files.exists('d/b.txt')
})
await op('files.watchDir', async () => {
  const seen = []
  const w = await box.files.watchDir('/home/user', (e) => seen.push(`${e.type} ${e.name}`))
  await box.files.write('w.txt', '1')
  await until('seen', () => seen.length > 0)
  await w.stop()
  return seen
})
await op('uploadUrl', async () => {
  const form = new FormData()
  form.append('file', new Blob(['by address']), 'x')
  const r = await fetch(await box.uploadUrl('/tmp/u', { useSignatureExpiration: 60 }), { method: 'POST', body: form })
  return [r.status, await (await fetch(await box.downloadUrl('/tmp/u', { useSignatureExpiration: 60 }))).text(),
    (await fetch(await box.downloadUrl('/tmp/u', { useSignatureExpiration: -1 }))).status]
})
await op('runCode', async () => {
  const r = await box.runCode('x = 41\nprint("out")\nx + 1')
  return [r.text, r.logs.stdout, r.executionCount, (await box.runCode('x')).text]
})
await op('runCode fails', async () => {
  const { error } = await box.runCode('1/0')
  return [error.name, error.value, error.traceback.includes('1/0')]
})
await op('runCode and files', async () => {
  await box.files.write('in.txt', 'in')
  await box.runCode('open("out.txt", "w").write(open("in.txt").read() + " out")')
  return (await box.commands.run('cat out.txt')).stdout
})
await op('runCode javascript', async () => (await box.runCode('console.log(6 * 7)', { language: 'js' })).logs.stdout)
await op('createCodeContext', async () => {
  context = await box.createCodeContext({ language: 'python', cwd: '/tmp/w' })
  return (await box.runCode('y = 1\nimport os\nos.getcwd()', { context, envs: { A: 'b' } })).text
})
await op('listCodeContexts', async () => (await box.listCodeContexts()).some((c) => c.id === context.id && c.language === 'python'))
await op('restartCodeContext', async () => {
  await box.restartCodeContext(context)
  return (await box.runCode('y', { context })).error.name
})
await op('removeCodeContext', () => box.removeCodeContext(context).then(() => true))
await op('isRunning', () => box.isRunning())
await op('getInfo', async () => {
  const i = await box.getInfo()
  return [i.state, i.metadata, i.network.allowOut, i.lifecycle.onTimeout]
})
await op('getMetrics', async () => (await box.getMetrics()).map((m) => m.memTotal > 0 && m.diskUsed > 0))
await op('setTimeout', () => box.setTimeout(600_000).then(() => true))
await op('updateNetwork', () => box.updateNetwork({ allowOut: ['a.example.com'] }).then(() => true))
await op('createSnapshot', async () => {
  snapshot = await box.createSnapshot()
  const copy = await Sandbox.create(snapshot.snapshotId, { ...options })
  const text = await copy.files.read('made.txt')
  await copy.kill()
  const all = await Sandbox.listSnapshots(options).nextItems()
  return [text, all.length, await Sandbox.deleteSnapshot(snapshot.snapshotId, options), await Sandbox.deleteSnapshot(snapshot.snapshotId, options)]
})
await op('fork', async () => {
  const [other] = await box.fork({ count: 1 })
  await other.files.write('made.txt', 'changed')
  const text = await box.files.read('made.txt')
  await other.kill()
  return [other.sandboxId !== box.sandboxId, text]
})
await op('getHost', async () => box.getHost(3000) === `3000-${box.sandboxId}.e2b.app`)
await op('pause', async () => [await box.pause(), await box.pause(), await box.isRunning()])
await op('list', async () => {
  const items = async (query) => (await Sandbox.list({ ...options, query }).nextItems()).map((s) => s.state)
  return [await items({ state: ['paused'], metadata: { team: 'a' } }), await items({ metadata: { team: 'b' } })]
})
await op('connect', async () => {
  box = await Sandbox.connect(box.sandboxId, options)
  return box.files.read('made.txt')
})
await op('kill', async () => [await box.kill(), await box.kill(), await box.isRunning(), await name(() => box.getInfo())])
await op('another key', () => name(() => Sandbox.create({ ...options, apiKey: 'waldo_unknown' })))
await op('volumes', () => name(() => Sandbox.create({ ...options, volumeMounts: { '/v': 'v' } })))
process.exit(failures ? 1 : 0)
