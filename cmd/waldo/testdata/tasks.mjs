// Calls tools as tasks with the official SDK: node tasks.mjs MODULES WALDO ARGS... Prints a line for each event.
import { pathToFileURL } from "node:url";

const [modules, waldo, ...args] = process.argv.slice(2);
const sdk = (file) => import(pathToFileURL(`${modules}/@modelcontextprotocol/sdk/dist/esm/${file}.js`));
const { Client } = await sdk("client/index");
const { StdioClientTransport } = await sdk("client/stdio");
const { CallToolResultSchema, CreateTaskResultSchema, ElicitRequestSchema } = await sdk("types");

const client = new Client({ name: "t", version: "1" }, { capabilities: { elicitation: { form: {} } }, enforceStrictCapabilities: true });
client.setRequestHandler(ElicitRequestSchema, async () => ({ action: "accept", content: { answer: "yes" } }));
await client.connect(new StdioClientTransport({ command: waldo, args, stderr: "inherit" }));
console.log(`support ${(await client.listTools()).tools.map((t) => `${t.name}:${t.execution?.taskSupport}`).join(" ")}`);
const tasks = client.experimental.tasks;
const text = (result) => result.content.map((c) => c.text).join("|");

async function stream(name, code) {
  for await (const m of tasks.callToolStream({ name, arguments: code }, undefined, { task: { ttl: 60000 } })) {
    if (m.type === "result") console.log(`${name} ${text(m.result).trim()}`);
    if (m.type === "taskStatus" && m.task.status === "input_required") console.log(`${name} input_required`);
    if (m.type === "error") console.log(`${name} error ${String(m.error).replace(/t_\w+/, "ID")}`);
  }
}
await stream("run_python", { code: "import time; time.sleep(1.2); print(6*7)" });
await stream("run_shell", { command: "echo agreed" });
await stream("run_javascript", { code: "console.log(1)" });

const { task } = await client.request({ method: "tools/call", params: { name: "run_python", arguments: { code: "import time; time.sleep(600)" }, task: { ttl: 1e15 } } }, CreateTaskResultSchema);
console.log(`ttl ${task.ttl}`);
console.log(`cancel ${(await tasks.cancelTask(task.taskId)).status}`);
await tasks.getTaskResult(task.taskId, CallToolResultSchema);
await tasks.cancelTask(task.taskId).catch((e) => console.log(`again ${e.message}`));
console.log(`list ${(await tasks.listTasks()).tasks.map((t) => t.status).join(" ")}`);
await client.close();
