// Runs the server in argv as one that speaks legacy revisions alone: requests of the modern revision are
// refused as by a server that does not know them, and all other lines pass.
import { spawn } from "node:child_process";
import { createInterface } from "node:readline";

const server = spawn(process.argv[2], process.argv.slice(3), { stdio: ["pipe", process.stdout, process.stderr] });
createInterface({ input: process.stdin }).on("line", (line) => {
  const m = JSON.parse(line);
  if (m.method !== "server/discover") return server.stdin.write(line + "\n");
  process.stdout.write(JSON.stringify({ jsonrpc: "2.0", id: m.id, error: { code: -32601, message: "no such method" } }) + "\n");
}).on("close", () => server.stdin.end());
server.on("exit", (code) => process.exit(code ?? 1));
