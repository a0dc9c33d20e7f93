// An independent agent: it says what it was told, and asks for a colour first where the text is "paint".
import { createServer } from 'node:http';
import { AgentEvent, DefaultRequestHandler, JsonRpcTransportHandler, ServerCallContext } from '@a2a-js/sdk/server';
import { InMemoryTaskStore } from '@a2a-js/sdk/server';

const now = () => new Date().toISOString();
const reply = (context, text) => ({
  messageId: 'r' + Math.random(), role: 2, contextId: context.contextId, taskId: context.taskId, metadata: undefined,
  parts: [{ content: { $case: 'text', value: text }, filename: '', mediaType: '' }], extensions: [], referenceTaskIds: [],
});
const executor = {
  async execute(context, bus) {
    const said = context.userMessage.parts.map((p) => p.content.value).join(' ');
    const state = said === 'paint' ? 6 : 3;
    bus.publish(AgentEvent.task({
      id: context.taskId, contextId: context.contextId, history: [context.userMessage], metadata: undefined,
      status: { state, timestamp: now(), message: state === 6 ? reply(context, 'which colour?') : undefined },
      artifacts: state === 6 ? [] : [{ artifactId: 'a', name: 'said', description: '', metadata: undefined, extensions: [],
        parts: [{ content: { $case: 'text', value: 'you said ' + said }, filename: '', mediaType: '' }] }],
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
    capabilities: { streaming: false, pushNotifications: false, extendedAgentCard: false, extensions: [] },
    skills: [{ id: 'say', name: 'Say', description: 'Says it.', tags: ['say'], examples: [], inputModes: [], outputModes: [],
      securityRequirements: [] }],
  };
  res.setHeader('Content-Type', 'application/json');
  if (req.url === '/.well-known/agent-card.json') return res.end(JSON.stringify(card));
  handler ??= new JsonRpcTransportHandler(new DefaultRequestHandler(card, new InMemoryTaskStore(), executor));
  let body = '';
  for await (const part of req) body += part;
  const context = new ServerCallContext({ requestedVersion: req.headers['a2a-version'] });
  res.end(JSON.stringify(await handler.handle(body, context)));
});
server.listen(0, '127.0.0.1', () => console.log(server.address().port));
