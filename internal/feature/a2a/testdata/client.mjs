// An independent client: it calls a waldo by the SDK, and prints what it got as one line of JSON for each step.
import { ClientFactory, JsonRpcTransportFactory, RestTransportFactory } from '@a2a-js/sdk/client';
import { randomUUID } from 'node:crypto';

const [base, token, binding] = process.argv.slice(2);
const withToken = (input, init = {}) => {
  const headers = new Headers(init.headers);
  headers.set('Authorization', 'Bearer ' + token);
  return fetch(input, { ...init, headers });
};
const say = (step, value) => console.log(JSON.stringify({ step, value }));
const transports = binding === 'REST' ? [new RestTransportFactory({ fetchImpl: withToken })]
  : [new JsonRpcTransportFactory({ fetchImpl: withToken })];
const factory = new ClientFactory({ transports });
const client = await factory.createFromUrl(base);
const message = (skill, text) => ({
  tenant: '', configuration: undefined, metadata: undefined,
  message: {
    messageId: randomUUID(), role: 1, contextId: '', taskId: '', metadata: { skill }, extensions: [], referenceTaskIds: [],
    parts: [{ content: { $case: 'data', value: { text } }, filename: '', mediaType: '' }],
  },
});
const task = await client.sendMessage(message('t.echo', 'sdk'));
say('send', { state: task.status.state, text: task.artifacts[0].parts[0].content.value });
const events = [];
for await (const e of client.sendMessageStream(message('t.echo', 'stream'))) events.push(e.payload.$case);
say('stream', events);
say('get', (await client.getTask({ id: task.id, tenant: '' })).id === task.id);
const asked = await client.sendMessage(message('t.note', 'x'));
say('asked', asked.status.state);
say('cancel', (await client.cancelTask({ id: asked.id, tenant: '', metadata: undefined })).status.state);
for (const [step, what] of [['absent', () => client.getTask({ id: 'absent', tenant: '' })],
  ['canceled', () => client.cancelTask({ id: asked.id, tenant: '', metadata: undefined })]]) {
  try {
    await what();
    say(step, 'no error');
  } catch (e) {
    say(step, e.name);
  }
}
