// An independent agent of A2A 0.3, as agent.mjs. Its card is at the older place.
import { createServer } from 'node:http';
import { DefaultRequestHandler, InMemoryTaskStore, JsonRpcTransportHandler } from '@a2a-js/sdk-0.3/server';

const now = () => new Date().toISOString();
const said = (text) => [{ kind: 'text', text }];
const file = [{ kind: 'file', file: { bytes: Buffer.from('a file for ann@example.com').toString('base64'), name: '../no te.csv',
  mimeType: 'text/csv' } }];
const executor = {
  async execute(context, bus) {
    const { taskId, contextId } = context;
    const text = context.userMessage.parts.map((p) => p.text).join(' ');
    const reply = (text) => ({ kind: 'message', messageId: 'r' + Math.random(), role: 'agent', taskId, contextId, parts: said(text) });
    if (text === 'slow') {
      bus.publish({ kind: 'task', id: taskId, contextId, history: [], status: { state: 'working', timestamp: now() } });
      for (const step of ['one', 'two', 'three']) {
        await new Promise((done) => setTimeout(done, 50));
        bus.publish({ kind: 'status-update', taskId, contextId, final: false,
          status: { state: 'working', timestamp: now(), message: reply(step) } });
      }
    }
    const asks = text === 'paint';
    bus.publish({ kind: 'task', id: taskId, contextId, history: [context.userMessage],
      status: { state: asks ? 'input-required' : 'completed', timestamp: now(), message: asks ? reply('which colour?') : undefined },
      artifacts: asks ? [] : [{ artifactId: 'a', name: 'said', parts: text === 'file' ? file : said('you said ' + text) }] });
    bus.finished();
  },
  async cancelTask() {},
};
let handler;
const server = createServer(async (req, res) => {
  const card = {
    name: 'sdk', description: 'an agent of the SDK', version: '1', protocolVersion: '0.3.0',
    url: 'http://127.0.0.1:' + server.address().port + '/', preferredTransport: 'JSONRPC',
    defaultInputModes: ['text/plain'], defaultOutputModes: ['text/plain'], capabilities: { streaming: true },
    skills: [{ id: 'say', name: 'Say', description: 'Says it.', tags: ['say'] }],
  };
  res.setHeader('Content-Type', 'application/json');
  if (req.url === '/.well-known/agent.json') return res.end(JSON.stringify(card));
  if (req.url !== '/') {
    res.statusCode = 404;
    return res.end();
  }
  handler ??= new JsonRpcTransportHandler(new DefaultRequestHandler(card, new InMemoryTaskStore(), executor));
  let body = '';
  for await (const part of req) body += part;
  const out = await handler.handle(body);
  if (!out[Symbol.asyncIterator]) return res.end(JSON.stringify(out));
  res.setHeader('Content-Type', 'text/event-stream');
  for await (const event of out) res.write('data: ' + JSON.stringify(event) + '\n\n');
  res.end();
});
server.listen(0, '127.0.0.1', () => console.log(server.address().port));
