declare const process: { argv: string[] };

import createClient from "openapi-fetch";
import type { components, paths } from "./api.js";

const [url, token] = process.argv.slice(2);
const waldo = createClient<paths>({ baseUrl: url, headers: { Authorization: `Bearer ${token}` } });
const show = (step: string, value: unknown) => console.log(step, JSON.stringify(value));
const short = (r?: components["schemas"]["Result"]) => r && [r.status, r.facts.exit_code, r.facts.stdout];

const run = await waldo.POST("/api/v1/runs", { body: { language: "python", code: "print(6 * 7)" } });
show("run", short(run.data));

const keyed = { params: { header: { "Idempotency-Key": "one" } }, body: { capability: "run_shell", arguments: { command: "echo $RANDOM" } } };
const first = await waldo.POST("/api/v1/calls", keyed), again = await waldo.POST("/api/v1/calls", keyed);
show("same key", [again.data?.replayed, again.data?.replay_of === first.data?.call_id]);

const denied = await waldo.POST("/api/v1/calls", { body: { capability: "files.delete", arguments: { path: "a" } } });
show("denied", [denied.response.status, denied.error && "reasons" in denied.error && denied.error.reasons?.[0]?.code]);

const asked = await waldo.POST("/api/v1/calls", { body: { capability: "files.write", arguments: { path: "a", content: "x" } } });
show("asked", [asked.response.status, asked.data?.status, asked.data?.approval_id?.startsWith("a_")]);

const tools = await waldo.GET("/api/v1/tools", { params: { query: { q: "run python code" } } });
show("tools", tools.data?.items.some((t) => t.capability === "run_python"));

show("made", (await waldo.POST("/api/v1/sandboxes", { body: { name: "work" } })).data?.state);
const at = { params: { path: { name: "work" } } };
await waldo.POST("/api/v1/sandboxes/{name}/exec", { ...at, body: { argv: ["sh", "-c", "echo kept > note"] } });
show("exec", short((await waldo.POST("/api/v1/sandboxes/{name}/exec", { ...at, body: { argv: ["cat", "note"] } })).data));
show("gone", (await waldo.DELETE("/api/v1/sandboxes/{name}", at)).response.status);
const absent = await waldo.POST("/api/v1/sandboxes/{name}/exec", { ...at, body: { argv: ["true"] } });
show("absent", absent.error && "code" in absent.error && absent.error.code);
