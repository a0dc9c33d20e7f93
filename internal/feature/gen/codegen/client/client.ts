// Sent with each request outside of waldo, as in HEADERS["Authorization"] = "Bearer …".
export const HEADERS: Record<string, string> = {};
const REVISION = "2025-11-25";
const TIMEOUT = 60_000;
const MAX_ANSWER = 16 << 20;

/** A call that did not succeed. */
export class ToolError extends Error {}

type Json = Record<string, unknown>;

// The tools of a waldo sandbox, or undefined elsewhere.
function sandbox(): Record<string, Record<string, (params: unknown) => Promise<unknown>>> | undefined {
  const all = globalThis as unknown as { servers?: any; search_tools?: unknown };
  return typeof all.search_tools === "function" ? all.servers : undefined;
}

/** Calls a tool: through waldo in a sandbox, else over HTTP. */
export async function callTool(tool: string, baseUrl: string, params?: object): Promise<unknown> {
  exact(params);
  const servers = sandbox();
  if (servers) return servers[SERVER][tool](params ?? {});
  if (!baseUrl) throw new ToolError(`the server ${SERVER} has no address: call it inside waldo, or give one`);
  const session: Record<string, string> = {};
  const hello = { protocolVersion: REVISION, capabilities: {}, clientInfo: { name: "waldo-gen", version: "1" } };
  const agreed = await request(baseUrl, session, 1, "initialize", hello);
  session["MCP-Protocol-Version"] = String(agreed["protocolVersion"] ?? REVISION);
  await request(baseUrl, session, undefined, "notifications/initialized");
  const answer = await request(baseUrl, session, 2, "tools/call", { name: tool, arguments: params ?? {} });
  const content = (answer["content"] ?? []) as { type?: string; text?: string }[];
  const text = content.filter((c) => c.type === "text").map((c) => c.text ?? "").join("\n");
  if (answer["isError"]) throw new ToolError(text || "the tool failed");
  return answer["structuredContent"] ?? text;
}

// exact refuses a whole number that JavaScript may have rounded, and what JSON cannot say.
function exact(v: unknown): void {
  if (typeof v === "bigint") throw new RangeError("a bigint cannot be sent");
  if (typeof v === "number") {
    if (!Number.isFinite(v)) throw new RangeError(`${v} cannot be sent`);
    if (Number.isInteger(v) && !Number.isSafeInteger(v) && Math.abs(v) < 1e21) {
      throw new RangeError(`${v} may be rounded: above 2^53 send it as a string`);
    }
  }
  if (v !== null && typeof v === "object") for (const one of Object.values(v)) exact(one);
}

async function request(
  baseUrl: string, session: Record<string, string>, id: number | undefined, method: string, params?: Json,
): Promise<Json> {
  const reply = await fetch(baseUrl, {
    method: "POST",
    redirect: "error", // HEADERS go to baseUrl alone
    signal: AbortSignal.timeout(TIMEOUT),
    headers: {
      ...HEADERS, ...session, "Content-Type": "application/json", "Accept": "application/json, text/event-stream",
    },
    body: JSON.stringify({ jsonrpc: "2.0", method, id, params }),
  });
  const named = reply.headers.get("Mcp-Session-Id");
  if (named) session["Mcp-Session-Id"] = named;
  if (!reply.ok) {
    await reply.body?.cancel();
    throw new ToolError(`the server answered with status ${reply.status}`);
  }
  if (id === undefined) {
    await reply.body?.cancel();
    return {};
  }
  const message = await answerOf(reply, id);
  const result = message["result"];
  if (typeof result !== "object" || result === null) {
    const error = message["error"] as { message?: unknown } | undefined;
    throw new ToolError(String(error?.message ?? "the server's answer is no result"));
  }
  return result as Json;
}

// answerOf reads the answer: one JSON text, or one event of a stream.
async function answerOf(reply: Response, id: number): Promise<Json> {
  const events = (reply.headers.get("Content-Type") ?? "").startsWith("text/event-stream");
  const decoder = new TextDecoder();
  const body = reply.body!.getReader();
  let all = "";
  let size = 0;
  for (;;) {
    const { done, value } = await body.read();
    size += value?.length ?? 0;
    if (size > MAX_ANSWER) throw new ToolError("the server's answer is too large");
    all += done ? decoder.decode() : decoder.decode(value, { stream: true });
    if (events) {
      const blocks = all.split(/\r?\n\r?\n/);
      all = blocks.pop() ?? "";
      for (const block of blocks) {
        const data = block.split(/\r?\n/).filter((l) => l.startsWith("data:")).map((l) => l.slice(5)).join("\n").trim();
        const message = data ? (JSON.parse(data) as Json) : {};
        if (message["id"] === id && !("method" in message)) {
          await body.cancel();
          return message;
        }
      }
    }
    if (done && events) throw new ToolError("the server ended its answer early");
    if (done) return JSON.parse(all) as Json;
  }
}
