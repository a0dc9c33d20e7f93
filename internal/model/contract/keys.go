package contract

import "waldo/internal/detect"

// Key is one key of waldo.yaml, as the parser, the JSON Schema and docs/contract.md know it.
type Key struct {
	Scope   string   // the mapping that holds it; "" is the top of the file
	Name    string   // as written
	Type    string   // text, word, int, bool, time, texts, words, refs, pairs, ref, any, or a scope; "a|b" is either
	Words   []string // with word and words: the allowed values
	Later   []string // words that are known but that this build does not enforce
	Default string   // meaning of an absent line
	Doc     string   // one sentence
	By      string   // the package that enforces it; "": this build does not, and the key is an error
}

// The scopes: mappings with keys of waldo's own.
const (
	top              = ""
	inServer         = "server"
	inSecret         = "secret"
	inAuth           = "auth"
	inOAuth          = "oauth"
	inServerRequests = "server_requests"
	inLimits         = "box"
	inMounts         = "mounts"
	inRun            = "run"
	inMount          = "mount"
	inEntry          = "capability"
	inInject         = "inject"
	inNetwork        = "network"
	inTraffic        = "limits"
	inPackages       = "packages"
	inRegistry       = "registry"
	inApproval       = "approval"
	inRule           = "rule"
	inRetry          = "retry"
	inRate           = "rate_limit"
	inExample        = "example"
	inRedact         = "redaction"
	inAsk            = "approvals"
	inGateway        = "gateway"
	inEntrance       = "gateway.auth"
	inDoor           = "gateway.limits"
	inIssuer         = "gateway.auth.oidc"
	inStore          = "store"
	inLog            = "log"
	inBoxes          = "sandboxes"
)

func scopeName(scope string) string {
	switch scope {
	case top:
		return "the file"
	case inEntry:
		return "a capability"
	case inServer:
		return "a server"
	case inSecret:
		return "a secret"
	case inExample:
		return "an example"
	case inRule:
		return "a rule"
	case inAsk:
		return "approval"
	}
	return scope
}

// classes are the data classes that redaction can hide; secrets are always hidden, the others on request.
var classes = detect.Classes()

// keys is the table of every key. To enforce a key, name its package in By; to enforce
// a word, move it from Later to Words.
var keys = []Key{
	{top, "version", "int", nil, nil, "1", "The version of this format: 1.", "internal/model/contract"},
	{top, "environment", "text", nil, nil, "none: capabilities that name environments are denied", "The name of this deployment, as in production.", "internal/core/policy"},
	{top, "servers", "servers", nil, nil, "none", "The upstream MCP servers, by name.", "internal/executor/upstream"},
	{top, "secrets", "named", nil, nil, "none", "Secrets by name, with the place of each.", "internal/model/secret"},
	{top, "capabilities", "capabilities", nil, nil, "none: every capability is denied", "The contracts: an entry or the word deny for each capability, or pattern with *.", "internal/core/policy"},
	{top, "internal", "texts", nil, nil, "none", "The hosts that network: internal_only allows; their names may resolve to private addresses.", "internal/network/egress"},
	{top, "addresses", "roles", nil, nil, "none: egress dials only public addresses", "Addresses of your own hosts: name to addresses or prefixes; sandboxes reach the name only at these.", "internal/network/egress"},
	{top, "webhooks", "any", nil, nil, "none", "Signed events from outside.", ""},
	{top, "redaction", inRedact, nil, nil, "secrets alone", "The data hidden from the model.", "internal/core/redact"},
	{top, "approval", inAsk, nil, nil, "an hour, no roles", "Who may answer an approval, and when it expires.", "internal/core/approval"},
	{top, "gateway", inGateway, nil, nil, "not listening", "The MCP server that agents see.", "internal/frontend/mcpserver"},
	{top, "log", inLog, nil, nil, "every record stays", "The audit log.", "internal/core/audit"},
	{top, "store", inStore, nil, nil, "sqlite", "The database for state.", "internal/storage/database"},
	{top, "sandboxes", inBoxes, nil, nil, "auto", "How sandboxes are made.", "internal/executor/runner"},

	{inSecret, "from", "ref", nil, nil, "", "Its place.", "internal/model/secret"},
	{inSecret, "environments", "places", nil, nil, "", "Its place in each environment; it is absent in others.", "internal/model/secret"},
	{inSecret, "command", "texts", nil, nil, "", "A program, run without a shell, that prints it.", "internal/model/secret"},
	{inSecret, "timeout", "time", nil, nil, "10s", "How long the command may take, at most 1m.", "internal/model/secret"},
	{inSecret, "refresh", "time", nil, nil, "5m for a command and for Vault, where its lease is not shorter; 1m for the keyring; a file when it changes", "How long a value is used before it is fetched again.", "internal/model/secret"},
	{inSecret, "inject", inInject, nil, nil, "none: it goes where it is used", "The one host that it belongs to: a sandbox gets a placeholder, and egress puts the secret into requests to that host.", "internal/network/egress"},
	{inInject, "host", "text", nil, nil, "", "The host, as in api.example.com or db.example.com:5433; without a port 443, with postgres 5432.", "internal/network/egress"},
	{inInject, "methods", "texts", nil, nil, "none; required unless as is postgres", "The methods of requests that get it, as in [GET, POST].", "internal/network/egress"},
	{inInject, "paths", "texts", nil, nil, "none; required unless as is postgres", "The paths of requests that get it, as in [/repos/*]; /* is every path.", "internal/network/egress"},
	{inInject, "as", "word", []string{"bearer", "basic", "header", "query", "sigv4", "postgres"}, nil, "", "How it goes into a request, replacing any value of the sandbox; with postgres, it opens database sessions.", "internal/network/egress"},
	{inInject, "name", "text", nil, nil, "none; needed with header and query", "The header, or the parameter of the query.", "internal/network/egress"},
	{inInject, "user", "text", nil, nil, "none; needed with basic and postgres", "The user that it is the password of.", "internal/network/egress"},
	{inInject, "database", "text", nil, nil, "none; needed with postgres", "The database, which is the only one that the sandbox enters.", "internal/network/egress"},
	{inInject, "tls", "bool", nil, nil, "true", "With postgres: whether the server must speak TLS.", "internal/network/egress"},
	{inInject, "key", "ref", nil, nil, "none; needed with sigv4", "With sigv4: the id of the key.", "internal/network/egress"},
	{inInject, "token", "ref", nil, nil, "none", "With sigv4: the session token of a temporary key.", "internal/network/egress"},
	{inInject, "region", "text", nil, nil, "none; needed with sigv4", "With sigv4: the region, as in eu-central-1.", "internal/network/egress"},
	{inInject, "service", "text", nil, nil, "none; needed with sigv4", "With sigv4: the service, as in s3.", "internal/network/egress"},

	{inServer, "command", "texts", nil, nil, "", "The program to start and its arguments.", "internal/executor/upstream"},
	{inServer, "url", "text", nil, nil, "", "The address of a server that runs elsewhere: https, or http on this machine.", "internal/network/mcphttp"},
	{inServer, "placement", "word", []string{"sandbox", "workspace", "outside"}, nil, "sandbox for a command, outside for a url", "The place where the server runs; with workspace each session has one of its own, which shares the files of its workspace.", "internal/executor/upstream"},
	{inServer, "network", "word|" + inNetwork, []string{"denied", "none"}, nil, "denied", "The hosts that the server's sandbox may reach.", "internal/network/egress"},
	{inServer, "secrets", "refs", nil, nil, "none", "Environment variables of the server that hold secrets.", "internal/executor/upstream"},
	{inServer, "env", "pairs", nil, nil, "none", "Other environment variables of the server.", "internal/executor/upstream"},
	{inServer, "mounts", inMounts, nil, nil, "none", "This machine's files that the server sees.", "internal/executor/upstream"},
	{inServer, "idle_timeout", "time", nil, nil, "10m", "How long an idle server keeps running.", "internal/executor/upstream"},
	{inServer, "per_session", "bool", nil, nil, "false: all sessions share it", "Whether each session has one of its own, which ends with it.", "internal/executor/upstream"},
	{inServer, "limits", inLimits, nil, nil, "as below", "Limits of the server's sandbox.", "internal/sandbox"},
	{inLimits, "memory_mb", "int", nil, nil, "1024", "Memory, in MiB.", "internal/sandbox"},
	{inLimits, "pids", "int", nil, nil, "256", "Processes and threads.", "internal/sandbox"},
	{inLimits, "files", "int", nil, nil, "1024", "Open files of one process.", "internal/sandbox"},
	{inLimits, "disk_mb", "int", nil, nil, "256", "Each writable place, in MiB.", "internal/sandbox"},
	{inServer, "names", "word", []string{"prefixed", "plain"}, nil, "prefixed", "Whether its tools, prompts and resources are shown under its name; plain, for one server alone, shows them as the server names them.", "internal/frontend/mcpserver/catalog"},
	{inServer, "server_requests", inServerRequests, nil, nil, "none: every request of the server is refused", "Requests that the server may send to the agent's host during a call.", "internal/executor/upstream"},
	{inServerRequests, "elicitation", "words", []string{"form", "url"}, nil, "refused", "Ask the person for data in a form, or show an address to open.", "internal/executor/upstream"},
	{inServerRequests, "sampling", "bool", nil, nil, "false", "Ask the host's model for text.", "internal/executor/upstream"},
	{inServerRequests, "roots", "word|texts", []string{"host"}, nil, "refused", "The folders that the server gets as roots: these, from the folder of this file, or with host those of the host.", "internal/executor/upstream"},
	{inServer, "auth", inAuth, nil, nil, "none", "How waldo authenticates to the server at a url.", "internal/network/mcphttp"},
	{inAuth, "bearer", "ref", nil, nil, "none", "A token, sent in the Authorization header.", "internal/network/mcphttp"},
	{inAuth, "headers", "headers", nil, nil, "none", "Other headers that hold secrets, by name.", "internal/network/mcphttp"},
	{inAuth, "oauth", inOAuth, nil, nil, "none", "A token that an authorization server issues; waldo stores and renews it.", "internal/network/oauth"},
	{inOAuth, "grant", "word", []string{"authorization_code", "client_credentials"}, nil, "authorization_code", "How waldo gets the token: by a person with waldo login, or with the client's own secret.", "internal/network/oauth"},
	{inOAuth, "client_id", "text", nil, nil, "waldo registers itself where that is offered", "The client that is registered for waldo.", "internal/network/oauth"},
	{inOAuth, "client_secret", "ref", nil, nil, "none: a public client", "The secret of that client.", "internal/network/oauth"},
	{inOAuth, "client_key", "ref", nil, nil, "none", "The client's private key (PKCS #8 in PEM, or a JSON Web Key), which signs client assertions (private_key_jwt).", "internal/network/oauth"},
	{inOAuth, "client_metadata", "text", nil, nil, "none", "The https address of a client metadata document, used as the client's id where the issuer takes one.", "internal/network/oauth"},
	{inOAuth, "scopes", "texts", nil, nil, "the scopes that the server requests", "The scopes of the token.", "internal/network/oauth"},
	{inOAuth, "dpop", "word", []string{"offered", "required", "never"}, nil, "offered", "Whether tokens are bound to a key of waldo (DPoP): where the issuer offers it, always or never.", "internal/network/oauth"},
	{inOAuth, "issuer", "text", nil, nil, "the first that the server names", "The only authorization server that is trusted with the client.", "internal/network/oauth"},
	{inMounts, "input", "text", nil, nil, "none", "A folder of this machine, shown read-only at /workspace/input; from the folder of this file.", "internal/executor/upstream"},
	{inMounts, "/PATH", "text|" + inMount, nil, nil, "none", "A file or folder of this machine, shown read-only at that path of the sandbox; from the folder of this file.", "internal/executor/upstream"},
	{inMount, "from", "text", nil, nil, "", "The file or folder of this machine.", "internal/executor/upstream"},
	{inMount, "writable", "bool", nil, nil, "false", "Whether the server can change what is in the folder. Only the disk bounds what it writes.", "internal/executor/upstream"},
	{inMount, "git", "bool", nil, nil, "false", "With writable: whether the server can write the repositories in it, but for their hooks and configuration.", "internal/executor/upstream"},
	{inServer, "data", "text", nil, nil, "none", "The name of a persistent folder: the server finds it at /data, which is its HOME.", "internal/executor/upstream"},

	{inEntry, "transport", "word", []string{"direct", "mcp", "sandboxed_exec"}, []string{"a2a"}, "from the name: a defined server's is mcp, a built-in's its own; otherwise denied", "How the capability is reached.", "internal/core/policy"},
	{inEntry, "mode", "word", []string{"read", "write", "high_risk"}, nil, "high_risk", "The risk class.", "internal/core/policy"},
	{inEntry, "danger", "int", nil, nil, "by mode: read 1, write 2, high_risk 3", "The danger level, 1 to 3, never below what the mode implies.", "internal/core/policy"},
	{inEntry, "isolation", "word", []string{"auto", "namespace", "gvisor", "confined"}, []string{"engine", "pod", "microvm"}, "auto: namespace for read and write, gvisor for high_risk", "How strong a sandbox a sandboxed_exec gets.", "internal/core/policy"},
	{inEntry, "server", "text", nil, nil, "the first part of the name, where a server has it", "The upstream it belongs to.", "internal/core/policy"},
	{inEntry, "tool", "text", nil, nil, "the rest of the name", "The upstream's own name for it.", "internal/core/policy"},
	{inEntry, "network", "word|" + inNetwork, []string{"denied", "none", "internal_only"}, nil, "denied", "The hosts it may reach; internal_only allows the hosts of internal, or none without that list.", "internal/network/egress"},
	{inNetwork, "allow", "texts", nil, nil, "nothing", "Hosts it may reach, as in api.example.com, *.example.com, db.example.com:5432 or GET api.example.com/v1/*.", "internal/network/egress"},
	{inNetwork, "limits", inTraffic, nil, nil, "waldo's own", "Traffic limits of one sandbox.", "internal/network/egress"},
	{inTraffic, "bytes", "int", nil, nil, "16 GiB", "Bytes both ways, over the life of the sandbox.", "internal/network/egress"},
	{inTraffic, "bytes_per_second", "int", nil, nil, "unlimited", "Bytes both ways in a second; faster traffic waits.", "internal/network/egress"},
	{inTraffic, "requests_per_second", "int", nil, nil, "none; 6000 connections in a minute", "Requests that waldo reads, and other connections; further ones are refused.", "internal/network/egress"},
	{inTraffic, "connections", "int", nil, nil, "256", "Connections at a time.", "internal/network/egress"},
	{inEntry, "filesystem", "word", []string{"workspace_only", "none"}, nil, "workspace_only", "Whether a sandboxed capability has the files of its session: input to read, output that persists.", "internal/executor/runner"},
	{inEntry, "template", "text", nil, nil, "host", "The root filesystem of its sandbox: a folder or archive by ./path or /path, or an image.", "internal/executor/runner"},
	{inEntry, "limits", inRun, nil, nil, "as below", "Limits of its sandbox; flags only narrow them.", "internal/sandbox"},
	{inRun, "memory_mb", "int", nil, nil, "512", "Memory of the whole process tree, in MiB.", "internal/sandbox"},
	{inRun, "cpu_seconds", "int", nil, nil, "10, or timeout_seconds where that is written and longer", "Processor time of the whole process tree.", "internal/sandbox"},
	{inRun, "pids", "int", nil, nil, "64", "Processes and threads at a time.", "internal/sandbox"},
	{inRun, "files", "int", nil, nil, "64", "Open files of one process.", "internal/sandbox"},
	{inRun, "disk_mb", "int", nil, nil, "256", "Each writable folder, in MiB.", "internal/sandbox"},
	{inRun, "output_kb", "int", nil, nil, "200", "Stdout and stderr kept, in KiB each.", "internal/sandbox"},
	{inEntry, "input", "text", nil, nil, "the session's own input", "A folder of this machine, shown read-only as /workspace/input; from the folder of this file.", "internal/executor/runner"},
	{inEntry, "env", "pairs", nil, nil, "none", "Environment variables of its sandbox without secrets.", "internal/executor/runner"},
	{inEntry, "root", "text", nil, nil, "none", "The only folder of a files tool.", ""},
	{inEntry, "allow", "texts", nil, nil, "none", "The programs that a cli tool may run.", ""},
	{inEntry, "url", "ref", nil, nil, "none", "The database of an sql tool.", ""},
	{inEntry, "secrets", "word|ref|refs", []string{"none"}, nil, "none", "The secrets it may use, by the variable in which a sandbox finds them.", "internal/core/policy"},
	{inEntry, "reveal", "texts", nil, nil, "none", "Those of the variables that hold the secret itself in the sandbox; its code can read and keep it.", "internal/executor/runner"},
	{inEntry, "environments", "texts", nil, nil, "every environment", "The environments it works in.", "internal/core/policy"},
	{inEntry, "timeout_seconds", "int", nil, nil, "30", "Wall-clock seconds for one try.", "internal/executor/runner"},
	{inEntry, "retry", inRetry, nil, nil, "never", "How often to try again; for reads alone.", "internal/executor/upstream"},
	{inRetry, "max", "int", nil, nil, "", "Further tries, 1 to 5.", "internal/executor/upstream"},
	{inRetry, "on", "words", []string{"unavailable", "timeout"}, nil, "[unavailable]", "After which failures.", "internal/executor/upstream"},
	{inEntry, "rate_limit", inRate, nil, nil, "none of its own; the session's budget holds", "How many calls in any window of time.", "internal/core/session"},
	{inRate, "calls", "int", nil, nil, "", "How many calls.", "internal/core/session"},
	{inRate, "per", "text", nil, nil, "", "In how long: second, minute, hour, day or a time such as 10s.", "internal/core/session"},
	{inEntry, "concurrency", "int", nil, nil, "none of its own", "How many calls at once.", "internal/core/session"},
	{inEntry, "idempotency_key", "text", nil, nil, "none", "The argument that makes a repeated call harmless.", ""},
	{inEntry, "response_budget_bytes", "int", nil, nil, "65536", "How much of a result the model sees.", "internal/core/redact"},
	{inEntry, "approval", "word|" + inApproval, []string{"none", "always", "manager_for_high_priority"}, nil, "always", "When a human is asked.", "internal/core/policy"},
	{inApproval, "when", "text", nil, nil, "always", "A CEL expression; a human is asked if it is true or cannot be evaluated.", "internal/core/policy"},
	{inApproval, "by", "text", nil, nil, "any approver", "The role that may answer.", "internal/core/approval"},
	{inEntry, "rules", "list:" + inRule, nil, nil, "none", "Conditions on the call that raise the danger or refuse it.", "internal/core/policy"},
	{inRule, "when", "text", nil, nil, "", "A CEL expression; the rule applies if it is true or cannot be evaluated.", "internal/core/policy"},
	{inRule, "danger", "int", nil, nil, "", "The danger level of the call.", "internal/core/policy"},
	{inRule, "deny", "bool", nil, nil, "false", "Refuse the call.", "internal/core/policy"},
	{inRule, "reason", "text", nil, nil, "none", "Shown to the approver and in the decision.", "internal/core/policy"},
	{inEntry, "listen", "any", nil, nil, "none", "Ports it may listen on.", ""},
	{inEntry, "packages", inPackages, nil, nil, "none", "The registries it may install packages from, by manager.", "internal/network/egress"},
	{inPackages, "npm", "word|" + inRegistry, []string{"allow", "deny"}, nil, "deny", "The npm registry; allow is the one that this machine is set to, else npm's own default.", "internal/network/egress"},
	{inPackages, "pypi", "word|" + inRegistry, []string{"allow", "deny"}, nil, "deny", "The pip index; allow is the one that this machine is set to, else pip's own default.", "internal/network/egress"},
	{inPackages, "debian", "word", []string{"deny"}, []string{"allow"}, "deny", "apt's.", "internal/network/egress"},
	{inRegistry, "registry", "text", nil, nil, "as this machine is set, else the manager's own default", "Its address, as in https://registry.example.com/npm; pip's ends in /simple.", "internal/network/egress"},
	{inRegistry, "files", "texts", nil, nil, "none", "Further hosts of the registry's files, as in files.example.com or files.example.com/packages/*.", "internal/network/egress"},
	{inRegistry, "pins", "word", []string{"required"}, nil, "every package", "With required, only the versions in lock pass.", "internal/network/egress"},
	{inRegistry, "lock", "text", nil, nil, "none; needed with pins", "The package-lock.json, or the requirements.txt with == alone, from the folder of this file.", "internal/network/egress"},
	{inEntry, "log", "word", []string{"full"}, []string{"digest"}, "full", "Form of the arguments in the audit log: redacted, or their digest alone.", "internal/core/audit"},
	{inEntry, "redact", "word|words", classes, nil, "as redaction.model", "Data classes hidden from the model in its results; with none, only secrets are hidden.", "internal/core/redact"},
	{inEntry, "rollback", "text", nil, nil, "none", "How to undo it.", ""},
	{inEntry, "trust", "word", []string{"untrusted", "partial", "trusted"}, nil, "untrusted", "How far its results may be believed.", "internal/core/redact"},
	{inEntry, "examples", "list:" + inExample, nil, nil, "none", "Calls and their expected decisions, checked at every load.", "internal/core/policy"},
	{inExample, "args", "any", nil, nil, "{}", "The arguments of the call.", "internal/core/policy"},
	{inExample, "expect", "word", []string{"allow", "ask", "deny"}, nil, "", "The decision, on a machine with every ability.", "internal/core/policy"},
	{inExample, "capability", "text", nil, nil, "the entry's own name; needed with a pattern", "The name that is called.", "internal/core/policy"},

	{inRedact, "model", "words", classes, nil, "secrets alone", "The classes hidden from the model; secrets always are.", "internal/core/redact"},
	{inRedact, "tokens", "bool", nil, nil, "true", "Put tokens such as [EMAIL_1] in place of personal data, to be restored for the next tool; false masks it.", "internal/core/redact"},

	{inAsk, "timeout", "time", nil, nil, "1h", "How long a question waits for its answer.", "internal/core/approval"},
	{inAsk, "by", "roles", nil, nil, "no roles", "Role to the principals that have it.", "internal/core/approval"},
	{inAsk, "carriers", "words", []string{"elicitation", "console", "terminal"}, nil, "[console, terminal]", "How a question reaches a human.", "internal/core/approval"},
	{inAsk, "notify", "texts", nil, nil, "none", "A command, run without a shell, for each new question; it reads a JSON object from its standard input.", "internal/core/approval"},
	{inAsk, "notify_arguments", "bool", nil, nil, "false", "Give that command the arguments of the call and the values of their tokens, too.", "internal/core/approval"},
	{inAsk, "root", "text", nil, nil, "the first approver in the log", "Fingerprint of the first approver's key, sha256: and 64 digits; no other key is taken in its place.", "internal/core/approval"},

	{inGateway, "listen", "text", nil, nil, "127.0.0.1:7676", "The address on which waldo serve listens unless it serves standard input; beyond this machine only with auth and url.", "internal/frontend/mcpserver"},
	{inGateway, "lean", "bool", nil, nil, "false", "Show three tools in place of all: search_tools, call_tool and run_code.", "internal/frontend/mcpserver"},
	{inGateway, "url", "text", nil, nil, "none: clients on this machine alone", "The public URL of the MCP endpoint: requests need its host in Host, and an issuer's tokens need it as audience.", "internal/frontend/mcpserver"},
	{inGateway, "origins", "texts", nil, nil, "waldo's own", "Origins of web pages that may ask, as in https://console.example.com.", "internal/frontend/mcpserver"},
	{inGateway, "auth", inEntrance, nil, nil, "the user that waldo runs as, on this machine", "Who may connect over HTTP.", "internal/frontend/mcpserver"},
	{inGateway, "limits", inDoor, nil, nil, "as below", "Limits of clients.", "internal/frontend/mcpserver"},
	{inDoor, "connections", "int", nil, nil, "4096, and at most half of the files that waldo may have open", "Connections at once of authenticated clients; one principal has half of them at most.", "internal/frontend/mcpserver"},
	{inDoor, "strangers", "int", nil, nil, "256", "Connections at once of unauthenticated clients; one address of another machine has a quarter of them at most.", "internal/frontend/mcpserver"},
	{inDoor, "sessions", "int", nil, nil, "4000", "Legacy sessions of all clients.", "internal/frontend/mcpserver"},
	{inDoor, "sessions_each", "int", nil, nil, "1000", "Legacy sessions of one principal.", "internal/frontend/mcpserver"},
	{inDoor, "calls_each", "int", nil, nil, "1000", "Requests that are being answered for one principal.", "internal/frontend/mcpserver"},
	{inDoor, "tasks", "int", nil, nil, "1000", "Tasks of all clients, over any transport.", "internal/frontend/mcpserver/tasks"},
	{inDoor, "tasks_each", "int", nil, nil, "100", "Tasks of one principal; an ended one whose result was fetched makes room.", "internal/frontend/mcpserver/tasks"},
	{inDoor, "task_seconds", "int", nil, nil, "3600", "How long a task and its result exist at most; a client can ask for less.", "internal/frontend/mcpserver/tasks"},
	{inEntrance, "tokens", "pairs", nil, nil, "none", "Name to the hash of a token, both from waldo token.", "internal/frontend/mcpserver"},
	{inEntrance, "oidc", inIssuer, nil, nil, "none", "The issuer whose signed tokens are accepted.", "internal/frontend/mcpserver"},
	{inIssuer, "issuer", "text", nil, nil, "", "The https address of the issuer, to the letter.", "internal/frontend/mcpserver"},
	{inIssuer, "jwks", "text", nil, nil, "the address in the issuer's metadata", "The address of the issuer's keys.", "internal/frontend/mcpserver"},
	{inIssuer, "scopes", "texts", nil, nil, "none", "Scopes that a token must have, every one.", "internal/frontend/mcpserver"},
	{inLog, "keep", "age", nil, nil, "for ever", "Retention of records, as in 90d or 720h; at least as long as an approval can wait.", "internal/core/audit"},
	{inStore, "url", "text", nil, nil, "sqlite", "sqlite.", "internal/storage/database"},
	{inBoxes, "default", "word", []string{"auto"}, []string{"namespace", "gvisor", "confined", "engine", "pod", "microvm"}, "auto", "The isolation of entries that name none.", "internal/core/policy"},
	{inBoxes, "memory_percent", "int", nil, nil, "75", "How much of this machine's memory the limits of all live runs may sum up to, in one waldo process.", "internal/executor/runner"},
	{inBoxes, "per_principal", "int", nil, nil, "16", "How many live runs one principal may have, in one waldo process.", "internal/executor/runner"},
	{inBoxes, "wait", "time", nil, nil, "20s", "How long a run waits for a free sandbox before it is denied with sandbox.busy, at most 10m.", "internal/executor/runner"},
	{inBoxes, "warm", "int", nil, nil, "0", "How many sandboxes to keep ready.", ""},
}

// Keys returns a copy of the table of every key.
func Keys() []Key { return append([]Key(nil), keys...) }

func keyOf(scope, name string) (Key, bool) {
	for _, k := range keys {
		if k.Scope == scope && k.Name == name {
			return k, true
		}
	}
	return Key{}, false
}

func namesOf(scope string) []string {
	var out []string
	for _, k := range keys {
		if k.Scope == scope {
			out = append(out, k.Name)
		}
	}
	return out
}
