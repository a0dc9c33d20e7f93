#!/usr/bin/env bash
# The largest MCP server on npm, @azure/mcp with --mode all, in a sandbox without network: one program finds its tools
# and calls three of them. Says how many tokens its definitions have, and how many the program put into a context.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/setup-npm.sh npm-azure
work=$(mktemp -d "${TMPDIR:-/tmp}/waldo-azure-XXXXXX")
trap 'rm -rf "$work"' EXIT
modules=$PWD/.cache/npm-azure/node_modules
platform=$(basename "$(ls -d "$modules"/@azure/mcp-linux-*)")
cat >"$work/waldo.yaml" <<END
version: 1
servers:
  azure:
    command: [/workspace/input/@azure/$platform/dist/azmcp, server, start, --mode, all]
    mounts: {input: $modules}
    limits: {memory_mb: 1024, files: 1024}
capabilities:
  azure.*: {mode: read, approval: none, timeout_seconds: 120, response_budget_bytes: 1048576}
  run_python: {mode: write, approval: none, isolation: namespace, timeout_seconds: 120}
END
cat >"$work/agent.py" <<'END'
found = {}
for words in ("best practices", "bicep schema", "storage account", "sql database", "kubernetes", "key vault", "monitor"):
    for tool in search_tools(words, limit=100):
        if tool.server == "azure":
            found[tool.name] = tool
print("found", len(found))
for resource in ("general", "azurefunctions"):
    text = await azure.get_azure_bestpractices_get(resource=resource, action="code-generation")
    workspace.write(resource + ".md", text)
    print(resource, text.text.count("\n") > 0 or len(text.text) > 100)
try:
    print(await azure.storage_account_get(subscription="x"))
except ToolError as e:
    print("refused:", str(e)[:60])
END
export WALDO_STATE=$work/state
bin/waldo --config "$work/waldo.yaml" run --timeout 100s --workspace "$work/ws" "$work/agent.py" >"$work/out" 2>"$work/facts" || { cat "$work/out" "$work/facts"; exit 1; }
grep -q '^general True$' "$work/out" && grep -q '^azurefunctions True$' "$work/out" && grep -q '^refused: azure.storage_account_get: ' "$work/out" ||
  { cat "$work/out" "$work/facts"; exit 1; }
bin/waldo --config "$work/waldo.yaml" tools --detail full --json >"$work/tools.json"
tools=$(grep -c '"capability": "azure\.' "$work/tools.json" || true)
echo "azure: $tools tools in $(wc -c <"$work/tools.json") bytes of definitions; one program called three of them and printed $(wc -c <"$work/out") bytes"
