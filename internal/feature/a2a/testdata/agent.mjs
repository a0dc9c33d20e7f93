// An independent agent: it says what it was told. It asks for a colour first where the text is "paint", takes its time
// over "slow", and gives a file for "file".
import { createServer } from 'node:http';
import { AgentEvent, DefaultRequestHandler, JsonRpcTransportHandler, ServerCallContext } from '@a2a-js/sdk/server';
import { InMemoryTaskStore } from '@a2a-js/sdk/server';

const now = () => new Date().toISOString();
const reply = (context, text) => ({
  messageId: 'r' + Math.random(), role: 2, contextId: context.contextId, taskId: context.taskId, metadata: undefined,
  parts: [{ content: { $case: 'text', value: text }, filename: '', mediaType: '' }], extensions: [], referenceTaskIds: [],
});
const said = (text) => [{ content: { $case: 'text', value: text }, filename: '', mediaType: '' }];
const file = [{ content: { $case: 'raw', value: Buffer.from('a file for ann@example.com') }, filename: '../no te.csv',
  mediaType: 'text/csv' }];
const executor = {
  async execute(context, bus) {
    const text = context.userMessage.parts.map((p) => p.content.value).join(' ');
    const state = text === 'paint' ? 6 : 3;
    if (text === 'slow') {
      bus.publish(AgentEvent.task({ id: context.taskId, contextId: context.contextId, history: [], metadata: undefined,
        status: { state: 2, timestamp: now(), message: undefined }, artifacts: [] }));
      for (const step of ['one', 'two', 'three']) {
        await new Promise((done) => setTimeout(done, 50));
        bus.publish(AgentEvent.statusUpdate({ taskId: context.taskId, contextId: context.contextId, metadata: undefined,
          status: { state: 2, timestamp: now(), message: reply(context, step) } }));
      }
      bus.publish(AgentEvent.artifactUpdate({ taskId: context.taskId, contextId: context.contextId, append: false, lastChunk: true,
        metadata: undefined, artifact: { artifactId: 'a', name: 'said', description: '', metadata: undefined, extensions: [],
          parts: said('you said slow') } }));
      bus.publish(AgentEvent.statusUpdate({ taskId: context.taskId, contextId: context.contextId, metadata: undefined,
        status: { state: 3, timestamp: now(), message: undefined } }));
      return bus.finished();
    }
    bus.publish(AgentEvent.task({
      id: context.taskId, contextId: context.contextId, history: [context.userMessage], metadata: undefined,
      status: { state, timestamp: now(), message: state === 6 ? reply(context, 'which colour?') : undefined },
      artifacts: state === 6 ? [] : [{ artifactId: 'a', name: 'said', description: '', metadata: undefined, extensions: [],
        parts: text === 'file' ? file : said('you said ' + text) }],
    }));
    bus.finished();
  },
  async cancelTask() {},
};
let handler;
const server = createServer(async (req, res) => {
  const base = 'http://127.0.0.1:' + server.address().port;
  const card = {
    name: 'sdk', description: 'an agent of the SDK', version: '1', provider: undefined, signatures: [], securitySchemes: {},
    securityRequirements: [], defaultInputModes: ['text/plain'], defaultOutputModes: ['text/plain'],
    supportedInterfaces: [{ url: base + '/a2a', protocolBinding: 'JSONRPC', protocolVersion: '1.0', tenant: '' }],
    capabilities: { streaming: true, pushNotifications: false, extendedAgentCard: false, extensions: [] },
    skills: [{ id: 'say', name: 'Say', description: 'Says it.', tags: ['say'], examples: [], inputModes: [], outputModes: [],
      securityRequirements: [] }],
  };
  res.setHeader('Content-Type', 'application/json');
  if (req.url === '/.well-known/agent-card.json') return res.end(JSON.stringify(card));
  handler ??= new JsonRpcTransportHandler(new DefaultRequestHandler(card, new InMemoryTaskStore(), executor));
  let body = '';
  for await (const part of req) body += part;
  const context = new ServerCallContext({ requestedVersion: req.headers['a2a-version'] });
  const out = await handler.handle(body, context);
  if (!out[Symbol.asyncIterator]) return res.end(JSON.stringify(out));
  res.setHeader('Content-Type', 'text/event-stream');
  for await (const event of out) res.write('data: ' + JSON.stringify(event) + '\n\n');
  res.end();
});
server.listen(0, '127.0.0.1', () => console.log(server.address().port));
