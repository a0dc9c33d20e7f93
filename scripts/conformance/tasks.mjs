// A modern server over standard input with the tools that the suite's scenarios of tasks call. It makes a task of a
// call if the request takes tasks; otherwise it answers when the tool is done.
import { createInterface } from "node:readline";

const extension = "io.modelcontextprotocol/tasks";
const text = (s, isError) => ({ content: [{ type: "text", text: s }], ...(isError && { isError }) });
const form = (message, name) => ({ method: "elicitation/create",
  params: { message, requestedSchema: { type: "object", properties: { [name]: { type: "string" } } } } });
const sleep = (s) => new Promise((done) => setTimeout(done, s * 1000));

// A tool gets its arguments and a function that asks the client.
const tools = {
  greet: async ({ name }) => text(`Hello, ${name}!`),
  slow_compute: async ({ seconds = 0 }) => { await sleep(seconds); return text("computed"); },
  failing_job: async () => { await sleep(1); return text("the job failed", true); },
  protocol_error_job: async () => { throw { code: -32603, message: "the job broke", data: {} }; },
  confirm_delete: async (_, ask) => text(JSON.stringify(await ask({ confirm: form("Delete?", "confirm") }))),
  multi_input: async (_, ask) => text(JSON.stringify(await ask({ one: form("One?", "one"), two: form("Two?", "two") }))),
  test_tool_with_task: async ({ user_name }) => { await sleep(0.2); return text(`Hello, ${user_name}!`); },
};
const tasks = new Map();

function start(run) {
  const t = { taskId: `t${tasks.size}`, status: "working", createdAt: new Date().toISOString(), lastUpdatedAt: new Date().toISOString(),
    ttlMs: 600000, pollIntervalMs: 50 };
  tasks.set(t.taskId, t);
  const created = { resultType: "task", ...t };
  const ask = (inputRequests) => new Promise((answered) => { Object.assign(t, { status: "input_required", inputRequests, answered, got: {} }); });
  run(ask).then((result) => ({ status: "completed", result }), (error) => ({ status: "failed", error }))
    .then((end) => { if (t.status !== "cancelled") Object.assign(t, end); });
  return created;
}

async function answer(method, params) {
  const task = tasks.get(params.taskId);
  switch (method) {
    case "server/discover":
      return { supportedVersions: ["2026-07-28"], capabilities: { tools: {}, extensions: { [extension]: {} } }, ttlMs: 0, cacheScope: "private" };
    case "tools/list":
      return { tools: Object.keys(tools).map((name) => ({ name, description: name, inputSchema: { type: "object" } })), ttlMs: 0, cacheScope: "private" };
    case "tools/call": {
      const { name, arguments: args = {}, inputResponses, _meta } = params;
      if (name === "test_tool_with_task" && !inputResponses) {
        return { resultType: "input_required", inputRequests: { user_name: form("Your name?", "user_name") }, requestState: "s" };
      }
      if (inputResponses) args.user_name = Object.values(inputResponses.user_name?.content ?? {})[0];
      const takes = _meta["io.modelcontextprotocol/clientCapabilities"].extensions?.[extension];
      if (takes && name !== "greet") return start((ask) => tools[name](args, ask));
      return tools[name](args, () => { throw { code: -32603, message: "asks as a task alone" }; });
    }
    case "tasks/get": {
      const { answered, got, ...shown } = task;
      return shown;
    }
    case "tasks/update":
      Object.assign(task.got, params.inputResponses);
      for (const key of Object.keys(params.inputResponses)) delete task.inputRequests[key];
      if (Object.keys(task.inputRequests).length === 0) { task.status = "working"; task.answered(task.got); }
      return {};
    case "tasks/cancel":
      if (task.status === "working" || task.status === "input_required") task.status = "cancelled";
      return {};
  }
  throw { code: -32601, message: `no such method: ${method}` };
}

createInterface({ input: process.stdin }).on("line", (line) => {
  const { id, method, params = {} } = JSON.parse(line);
  if (id === undefined) return;
  answer(method, params).then((result) => ({ result: { resultType: "complete", ...result } }), (error) => ({ error }))
    .then((end) => process.stdout.write(JSON.stringify({ jsonrpc: "2.0", id, ...end }) + "\n"));
}).on("close", () => process.exit(0));
