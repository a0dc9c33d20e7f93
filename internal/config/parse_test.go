package config

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"waldo/internal/config/starter"
	"waldo/internal/model/contract"
)

// entryWith is a sound file whose one entry has the given lines.
func entryWith(lines ...string) string {
	return "capabilities:\n  a.b:\n    transport: mcp\n    mode: read\n" + indent("    ", lines)
}

func indent(by string, lines []string) string {
	return by + strings.Join(lines, "\n"+by) + "\n"
}

func sb(lines ...string) string {
	return "capabilities:\n  box:\n    transport: sandboxed_exec\n    mode: write\n" + indent("    ", lines)
}

func TestParseRefuses(t *testing.T) {
	deep := strings.Repeat("[", 40) + strings.Repeat("]", 40)
	for _, row := range []struct {
		why, text, code string
		line, column    int
	}{
		{"a key that does not exist", "capabilites: {}\n", "key.unknown", 1, 1},
		{"a key that does not exist in an entry", entryWith("tansport: mcp"), "key.unknown", 5, 5},
		{"a key twice", "version: 1\nversion: 1\n", "key.duplicate", 2, 1},
		{"a capability twice", "capabilities:\n  a: {mode: read}\n  a: {mode: write}\n", "key.duplicate", 3, 3},
		{"a quoted key is the same key", "capabilities:\n  a: {mode: read}\n  \"a\": {mode: write}\n", "key.duplicate", 3, 3},
		{"an anchor", "capabilities:\n  a: &x {mode: read}\n", "yaml.anchor", 2, 6},
		{"an alias", "capabilities:\n  a: &x {mode: read}\n  b: *x\n", "yaml.anchor", 2, 6},
		{"a merge key", "capabilities:\n  a:\n    <<: {mode: read}\n", "yaml.merge", 3, 5},
		{"a tag", "environment: !!str 1\n", "yaml.tag", 1, 14},
		{"a binary tag that hides text", "environment: !!binary cHJvZA==\n", "yaml.tag", 1, 14},
		{"a key that is true", "capabilities:\n  true: {mode: read}\n", "yaml.key", 2, 3},
		{"a key that is a number", "capabilities:\n  1: {mode: read}\n", "yaml.key", 2, 3},
		{"a key that is a list", "capabilities:\n  ? [a]\n  : {mode: read}\n", "yaml.key", 2, 5},
		{"a second document", "version: 1\n---\nversion: 1\n", "yaml.documents", 2, 1},
		{"a list at the top", "- a\n", "value.type", 1, 1},
		{"text at the top", "not a configuration\n", "value.type", 1, 1},
		{"a tab as indentation", "capabilities:\n\ta: {}\n", "yaml.syntax", 2, 0},
		{"a byte order mark", "\ufeffversion: 1\n", "yaml.hidden", 1, 1},
		{"a bidirectional control in a comment", "version: 1 # \u202egnihton\n", "yaml.hidden", 1, 14},
		{"a bidirectional control by escape", "environment: \"pro\\u202ed\"\n", "yaml.hidden", 1, 14},
		{"a NUL", "version: 1\x00\n", "yaml.hidden", 1, 11},
		{"not UTF-8", "version: \xff\n", "file.utf8", 1, 1},
		{"too large", strings.Repeat("# long\n", 1<<20/7+1), "file.size", 1, 1},
		{"too deep", "environment: " + deep + "\n", "yaml.depth", 1, 0},
		{"no value", "servers:\n", "value.empty", 1, 1},
		{"Norway: a word that YAML readers read differently", "environment: no\n", "value.ambiguous", 1, 14},
		{"a number where text belongs", "environment: 1\n", "value.type", 1, 14},
		{"a date where text belongs", "environment: 2026-01-01\n", "value.type", 1, 14},
		{"a rate without calls", entryWith("rate_limit: {per: minute}"), "key.missing", 5, 0},
		{"rules that are no list", entryWith("rules: {when: 'true'}"), "value.type", 5, 0},
		{"rules that are empty", entryWith("rules: []"), "value.type", 5, 0},
		{"examples that are no list", entryWith("examples: {args: {}}"), "value.type", 5, 0},
		{"examples that are empty", entryWith("examples: []"), "value.type", 5, 0},
		{"an address without a port", "gateway: {listen: localhost}\n", "value.address", 1, 0},
		{"a token without a name", "gateway: {auth: {tokens: {'a b': 'sha256:" + strings.Repeat("0", 64) + "'}}}\n",
			"value.name", 1, 0},
		{"an issuer that is not named", "gateway: {url: 'https://a.example.com/mcp', auth: {oidc: {scopes: [a]}}}\n",
			"key.missing", 1, 0},
		{"a login to the console without a role",
			"gateway: {console: {oidc: {issuer: 'https://i.example.com', client_id: waldo}}}\n", "key.missing", 1, 0},
		{"a login to the console without a client",
			"gateway: {console: {oidc: {issuer: 'https://i.example.com', viewer: [a]}}}\n", "key.missing", 1, 0},
		{"an origin without a host", "gateway: {origins: ['https://']}\n", "value.url", 1, 0},
		{"an origin of another scheme", "gateway: {origins: ['ftp://a.example.com']}\n", "value.url", 1, 0},
		{"a server without a letter", "servers: {1a: {command: [a]}}\n", "value.name", 1, 0},
		{"a server with two underscores", "servers: {a__b: {command: [a]}}\n", "value.name", 1, 0},
		{"auth of a program", "servers: {a: {command: [a], auth: {bearer: 'env:X'}}}\n", "key.misplaced", 1, 0},
		{"a server at no host", "servers: {a: {url: 'https:///mcp'}}\n", "value.url", 1, 0},
		{"a server of another scheme", "servers: {a: {url: 'ftp://a.example.com/'}}\n", "value.url", 1, 0},
		{"a variable that is none", "servers: {a: {command: [a], env: {'A=B': x}}}\n", "value.name", 1, 0},
		{"a root that is no fingerprint", "approval: {root: 'sha256:12'}\n", "value.fingerprint", 1, 0},
		{"a role without a letter", "approval: {by: {'a b': [alice]}}\n", "value.name", 1, 0},
		{"a capability with a dot first", "capabilities:\n  .a: {mode: read}\n", "value.name", 2, 3},
		{"a capability with a dot last", "capabilities:\n  a.: {mode: read}\n", "value.name", 2, 3},
		{"a capability with two dots", "capabilities:\n  a..b: {mode: read}\n", "value.name", 2, 3},
		{"a capability that is too long", "capabilities:\n  " + strings.Repeat("a", 129) + ": {mode: read}\n",
			"value.name", 2, 3},
		{"a header without a name", "servers: {a: {url: 'https://a.example.com/', auth: {headers: {'': 'env:X'}}}}\n",
			"value.name", 1, 0},
		{"a header with a long name", "servers: {a: {url: 'https://a.example.com/', auth: {headers: {" +
			strings.Repeat("a", 129) + ": 'env:X'}}}}\n", "value.name", 1, 0},
		{
			"a header of proxies", "servers: {a: {url: 'https://a.example.com/', auth: {headers: {Proxy-Authorization: " +
				"'env:X'}}}}\n", "value.name", 1, 0,
		},
		{
			"a header of browsers", "servers: {a: {url: 'https://a.example.com/', auth: {headers: {Sec-Fetch-Site: " +
				"'env:X'}}}}\n", "value.name", 1, 0,
		},
		{"a secret of a client without one",
			"servers: {a: {url: 'https://a.example.com/', auth: {oauth: {client_secret: 'env:X'}}}}\n", "key.missing", 1, 0},
		{
			"a document at no host", "servers: {a: {url: 'https://a.example.com/', auth: {oauth: {client_metadata: " +
				"'https:///x'}}}}\n", "value.url", 1, 0,
		},
		{
			"a document without a path", "servers: {a: {url: 'https://a.example.com/', auth: {oauth: {client_metadata: " +
				"'https://b.example.com/'}}}}\n", "value.url", 1, 0,
		},
		{"a command of nothing", "servers: {a: {command: []}}\n", "value.empty", 1, 0},
		{"a command that is a mapping", "servers: {a: {command: {a: b}}}\n", "value.type", 1, 0},
		{"a secret that is a list", "servers: {a: {command: [a], secrets: {T: [x]}}}\n", "secret.literal", 1, 0},
		{"text that is a list", "environment: [a]\n", "value.type", 1, 0},
		{"text that is blank", "environment: '  '\n", "value.empty", 1, 0},
		{"a yes that is a list", "servers: {a: {command: [a], server_requests: [true]}}\n", "value.type", 1, 0},
		{"a time that is too short", "approval: {timeout: 1us}\n", "value.range", 1, 0},
		{"a time that is too long", "approval: {timeout: 721h}\n", "value.range", 1, 0},
		{"a mount without a folder", "servers: {a: {command: [a], mounts: {/data: {writable: true}}}}\n",
			"key.missing", 1, 0},
		{"a mount of the root", "servers: {a: {command: [a], mounts: {/: {from: ./a}}}}\n", "value.path", 1, 0},
		{"a mount that is not plain", "servers: {a: {command: [a], mounts: {/a/../b: {from: ./a}}}}\n", "value.path", 1, 0},
		{"a mount of /tmp", "servers: {a: {command: [a], mounts: {/tmp: {from: ./a}}}}\n", "value.path", 1, 0},
		{"a mount above a sandbox's own", "servers: {a: {command: [a], mounts: {/usr: {from: ./a}}}}\n", "value.path", 1, 0},
		{"a mount below a sandbox's own", "servers: {a: {command: [a], mounts: {/proc/x: {from: ./a}}}}\n",
			"value.path", 1, 0},
		{"a mount in a mount", "servers: {a: {command: [a], mounts: {/data: {from: ./a}, /data/x: {from: ./b}}}}\n",
			"mounts.nested", 1, 0},
		{"a mount around a mount", "servers: {a: {command: [a], mounts: {/data/x: {from: ./a}, /data: {from: ./b}}}}\n",
			"mounts.nested", 1, 0},
		{"no number", entryWith("examples: [{args: {x: .nan}, expect: allow}]"), "value.ambiguous", 5, 0},
		{"a number without an end", entryWith("examples: [{args: {x: .inf}, expect: allow}]"), "value.ambiguous", 5, 0},
		{"an octal number in an example", entryWith("examples: [{args: {x: 010}, expect: allow}]"), "value.ambiguous", 5, 0},
		{"Norway in an example", entryWith("examples: [{args: {x: no}, expect: allow}]"), "value.ambiguous", 5, 0},
		{"an octal number", entryWith("timeout_seconds: 010"), "value.ambiguous", 5, 22},
		{"a hexadecimal number", entryWith("timeout_seconds: 0x10"), "value.ambiguous", 5, 22},
		{"a number with underscores", entryWith("timeout_seconds: 1_0"), "value.ambiguous", 5, 22},
		{"a fraction", entryWith("timeout_seconds: 1.5"), "value.type", 5, 22},
		{"a number in quotes", entryWith(`timeout_seconds: "8"`), "value.type", 5, 22},
		{"no time at all", entryWith("timeout_seconds: 0"), "value.range", 5, 22},
		{"a negative time", entryWith("timeout_seconds: -1"), "value.range", 5, 22},
		{"more than a day", entryWith("timeout_seconds: 86401"), "value.range", 5, 22},
		{"a mode that does not exist", "capabilities:\n  a: {mode: safe}\n", "value.unknown", 2, 13},
		{"letter case counts", "capabilities:\n  a: {mode: contract.Read}\n", "value.unknown", 2, 13},
		{"an approval word that does not exist", entryWith("approval: sometimes"), "value.unknown", 5, 15},
		{"once per session is no approval of ours", entryWith("approval: once_per_session"), "value.unknown", 5, 15},
		{"approval that says nothing", entryWith("approval: {}"), "value.empty", 5, 15},
		{"an isolation for later", sb("isolation: pod"), "value.unknown", 5, 16},
		{"a port that is none", sb("network: {allow: ['api.example.com:65536']}"), "value.host", 5, 23},
		{"the port of waldo's own names", sb("network: {allow: ['api.example.com:53']}"), "value.host", 5, 23},
		{"a path that climbs", sb("network: {allow: ['api.example.com/v1/../x']}"), "value.host", 5, 23},
		{"a URL is no host", sb("network: {allow: ['https://api.example.com']}"), "value.host", 5, 23},
		{"a host pattern that is too wide", sb("network: {allow: ['*.com']}"), "value.host", 5, 23},
		{"every host", sb("network: {allow: ['*']}"), "value.host", 5, 23},
		{"every host, as --allow-network says it", sb("network: {public: true}"), "key.unknown", 5, 15},
		{"an address is not a host name", sb("network: {allow: [10.0.0.1]}"), "value.host", 5, 23},
		{"a label that is encoded and is not", sb("network: {allow: ['ab--c.example.com']}"), "value.host", 5, 23},
		{"a host that ends in a number", sb("network: {allow: [a.0x1]}"), "value.host", 5, 23},
		{"a host in capital letters", sb("network: {allow: [API.example.com]}"), "value.host", 5, 23},
		{"packages of an unknown manager", sb("packages: {cargo: allow}"), "key.unknown", 5, 16},
		{"a suite of another manager", sb("packages: {npm: {suite: bookworm main}}"), "key.unknown", 5, 16},
		{"a suite without components", sb("packages: {debian: {suite: bookworm}}"), "value.name", 5, 32},
		{"a suite with more", sb("packages: {debian: {suite: '[trusted=yes] bookworm main'}}"), "value.name", 5, 32},
		{"packages in a list", sb("packages: [requests]"), "value.type", 5, 15},
		{"a registry without TLS", sb("packages: {npm: {registry: 'http://r.example.com/'}}"), "value.host", 5, 32},
		{"a registry with a password", sb("packages: {npm: {registry: 'https://a:b@r.example.com/'}}"),
			"secret.literal", 5, 32},
		{"a registry with a query", sb("packages: {npm: {registry: 'https://r.example.com/?a=b'}}"),
			"secret.literal", 5, 32},
		{"pins without a lock", sb("packages: {npm: {pins: required}}"), "key.missing", 5, 16},
		{"a lock that pins nothing", sb("packages: {npm: {lock: ./l.json}}"), "key.missing", 5, 16},
		{"a lock of somebody else's", sb("packages: {npm: {pins: required, lock: ../l.json}}"), "value.name", 5, 44},
		{"files of every host", sb("packages: {npm: {files: ['*.example.com']}}"), "value.host", 5, 30},
		{"rollback by nothing", sb("rollback: {args: {a: 1}}"), "key.missing", 5, 5},
		{"a settlement without a question", sb("settle: {by: s.get}"), "key.missing", 5, 5},
		{"idempotency that says nothing", sb("idempotency: {}"), "value.empty", 5, 18},
		{"a webhook without a secret", "webhooks: {h: {scheme: slack, deliver: agent}}\n", "key.missing", 1, 12},
		{"a webhook with a literal secret", "webhooks: {h: {scheme: slack, deliver: agent, secret: 's3cr3t!'}}\n",
			contract.CodeLiteral, 1, 55},
		{"a webhook without a target", "webhooks: {h: {scheme: slack, secret: s}}\n", "key.missing", 1, 12},
		{"a webhook to nothing", "webhooks: {h: {scheme: slack, secret: s, deliver: {}}}\n", "key.missing", 1, 51},
		{"a webhook to a pattern", "webhooks: {h: {scheme: slack, secret: s, deliver: {tool: 's.*'}}}\n", "key.missing", 1, 51},
		{"a webhook with a path for a name", "webhooks: {a/b: {scheme: slack, secret: s, deliver: agent}}\n",
			"value.name", 1, 12},
		{"another store", "store: {url: 'mysql://h/d'}\n", "store.url", 1, 14},
		{"a store without a host", "store: {url: 'postgres:d'}\n", "store.url", 1, 14},
		{"a password of a store", "store: {url: 'postgres://a:b@h/d'}\n", "store.password", 1, 14},
		{"danger below the mode", "capabilities:\n  a: {mode: high_risk, danger: 1}\n", "danger.lowered", 2, 24},
		{"danger below the mode that is not written", "capabilities:\n  a: {danger: 2}\n", "danger.lowered", 2, 7},
		{"danger beyond the scale", "capabilities:\n  a: {danger: 4}\n", "value.range", 2, 15},
		{"a second try of a write", "capabilities:\n  a: {mode: write, retry: {max: 1}}\n", "retry.unsafe", 2, 20},
		{"retry without max", entryWith("retry: {on: [timeout]}"), "key.missing", 5, 5},
		{"a rate without a window", entryWith("rate_limit: {calls: 3}"), "key.missing", 5, 5},
		{"one tool for many capabilities", "capabilities:\n  a.*: {tool: x}\n", "key.misplaced", 2, 9},
		{"a second run of a sandbox", "capabilities:\n  x: {transport: sandboxed_exec, mode: read, retry: {max: 1}}\n",
			"key.misplaced", 2, 46},
		{"a log for later", sb("log: digest"), "value.unknown", 5, 10},
		{"a token and a way to one", "servers:\n  s: {url: 'https://h/', auth: {bearer: 'env:T', oauth: {}}}\n",
			"auth.twice", 2, 33},
		{"a header that waldo writes", "servers:\n  s: {url: 'https://h/', auth: {headers: {authorization: 'env:T'}}}\n",
			"value.name", 2, 43},
		{"a header of MCP", "servers:\n  s: {url: 'https://h/', auth: {headers: {mcp-session-id: 'env:T'}}}\n",
			"value.name", 2, 43},
		{"a header with a line break", "servers:\n  s: {url: 'https://h/', auth: {headers: {\"a\\r\\nb\": 'env:T'}}}\n",
			"value.name", 2, 43},
		{"a secret in a header", "servers:\n  s: {url: 'https://h/', auth: {headers: {x-key: 'abc def'}}}\n",
			"secret.literal", 2, 50},
		{
			"a client with a secret and a key",
			"servers:\n  s: {url: 'https://h/', auth: {oauth: {client_id: a, client_secret: 'env:A', client_key: 'env:B'}}}\n",
			"auth.twice", 2, 91,
		},
		{"a key without a client", "servers:\n  s: {url: 'https://h/', auth: {oauth: {client_key: 'env:B'}}}\n",
			"key.missing", 2, 33},
		{"a client that cannot show itself",
			"servers:\n  s: {url: 'https://h/', auth: {oauth: {grant: client_credentials}}}\n", "key.missing", 2, 33},
		{"metadata in the clear", "servers:\n  s: {url: 'https://h/', auth: {oauth: {client_metadata: 'http://h/c'}}}\n",
			"value.url", 2, 58},
		{"isolation without a sandbox", "capabilities:\n  a.b: {transport: direct, isolation: namespace}\n", "key.misplaced", 2, 28},
		{"a server for a sandbox", sb("server: x"), "key.misplaced", 5, 5},
		{"a wire name", "capabilities:\n  github__create: {mode: read}\n", "value.name", 2, 3},
		{"a name with a space", "capabilities:\n  'a b': {mode: read}\n", "value.name", 2, 3},
		{"a name in other letters", "capabilities:\n  gіthub.x: {mode: read}\n", "value.name", 2, 3},
		{"two stars", "capabilities:\n  'a**': {mode: read}\n", "value.name", 2, 3},
		{"an empty name", "capabilities:\n  '': {mode: read}\n", "value.name", 2, 3},
		{"a rule without a consequence", entryWith("rules: [{when: 'true'}]"), "key.missing", 5, 13},
		{"a rule with two consequences", entryWith("rules: [{when: 'true', danger: 3, deny: true}]"), "key.missing", 5, 13},
		{"a rule that lowers", sb("rules: [{when: 'args.x == 1', danger: 1}]"), "rule.useless", 5, 20},
		{"a rule that raises to where it is", sb("rules: [{when: 'args.x == 1', danger: 2}]"), "rule.useless", 5, 20},
		{"a rule behind one that always refuses",
			entryWith("rules: [{when: 'true', deny: true}, {when: 'args.x == 1', danger: 3}]"), "rule.shadowed", 5, 48},
		{"the same rule again", entryWith("rules: [{when: args.x==1, danger: 3}, {when: args.x == 1, danger: 2}]"),
			"rule.shadowed", 5, 50},
		{"an example without expect", entryWith("examples: [{args: {}}]"), "key.missing", 5, 16},
		{"an example of a pattern without a name", "capabilities:\n  a.*: {mode: read, examples: [{expect: deny}]}\n",
			"key.missing", 2, 32},
		{"an example of another capability", entryWith("examples: [{capability: b, expect: deny}]"),
			"example.elsewhere", 5, 16},
		{"an empty list of environments allows nothing and is not written so", entryWith("environments: []"),
			"value.empty", 5, 19},
		{"a word twice", entryWith("redact: [email, email]"), "value.duplicate", 5, 21},
		{"a server without a way to it", "servers:\n  s: {placement: outside}\n", "server.unreachable", 2, 3},
		{"a server with two ways to it", "servers:\n  s: {command: [a], url: 'https://h/'}\n", "server.twice", 2, 26},
		{"a server of one session that all share",
			"servers:\n  s: {command: [a], placement: workspace, per_session: false}\n", "key.misplaced", 2, 56},
		{"an input beside the session's", "servers:\n  s: {command: [a], placement: workspace, mounts: {input: ./x}}\n",
			"key.misplaced", 2, 51},
		{"a url in a workspace", "servers:\n  s: {url: 'https://h/', placement: workspace}\n", "key.misplaced", 2, 37},
		{"a url in a sandbox", "servers:\n  s: {url: 'https://h/', placement: sandbox}\n", "key.misplaced", 2, 37},
		{"a wall that an outside server does not have",
			"servers:\n  s: {command: [a], placement: outside, network: denied}\n", "key.not_enforced", 2, 50},
		{"addresses of many hosts", "addresses: {'*.example.com': [10.0.0.7]}\n", "value.host", 1, 13},
		{"addresses of an address", "addresses: {10.0.0.7: [10.0.0.7]}\n", "value.host", 1, 13},
		{"addresses of a port", "addresses: {'npm.example.com:443': [10.0.0.7]}\n", "value.host", 1, 13},
		{"a name for an address", "addresses: {npm.example.com: [localhost]}\n", "value.address", 1, 31},
		{"a prefix that is longer than it says", "addresses: {npm.example.com: [10.0.0.7/24]}\n", "value.address", 1, 31},
		{"everywhere for one host", "addresses: {npm.example.com: [0.0.0.0/0]}\n", "value.address", 1, 31},
		{"a whole network of IPv4 for one host", "addresses: {npm.example.com: [10.0.0.0/8]}\n", "value.address", 1, 31},
		{"a whole network of IPv6 for one host", "addresses: {npm.example.com: ['fd00::/16']}\n", "value.address", 1, 31},
		{"IPv4 in IPv6 clothes", "addresses: {npm.example.com: ['::ffff:10.0.0.0/120']}\n", "value.address", 1, 31},
		{"no address", "addresses: {npm.example.com: []}\n", "value.empty", 1, 30},
		{"http to elsewhere", "servers:\n  s: {url: 'http://example.com/mcp'}\n", "value.url", 2, 12},
		{"a password in an address", "servers:\n  s: {url: 'https://u:p@example.com/'}\n", "secret.literal", 2, 12},
		{"a token in place of its name",
			"servers:\n  s: {command: [a], secrets: {T: ghp_16C7e42F292c6912E7710c838347Ae178B4a}}\n", "secret.literal", 2, 34},
		{"a token in the environment", "servers:\n  s: {command: [a], env: {T: sk-ant-0123456789}}\n",
			"secret.literal", 2, 30},
		{"a variable that is none", "servers:\n  s: {command: [a], secrets: {A-B: 'env:X'}}\n", "value.name", 2, 31},
		{"a secret that the sandbox gets nothing of", sb("secrets: {T: 'env:X'}"), "secret.kept", 5, 5},
		{"a secret of a sandbox without a variable", sb("secrets: 'env:X'"), "secret.variable", 5, 5},
		{"a variable that is revealed and not there", sb("secrets: {T: 'env:X'}\n    reveal: [T, U]"),
			"reveal.unknown", 6, 5},
		{"a revealed secret outside a sandbox", "capabilities:\n  a.b: {transport: mcp, secrets: {T: 'env:X'}, reveal: [T]}\n",
			"key.misplaced", 2, 48},
		{"a secret with two places", "secrets:\n  a: {from: 'env:A', command: [pass, a]}\n", "key.missing", 2, 3},
		{"a secret without a place", "secrets:\n  a: {refresh: 5m}\n", "key.missing", 2, 3},
		{"a secret that names another", "secrets:\n  a: {from: b}\n", "value.place", 2, 13},
		{"a token in place of a place", "secrets:\n  a: {from: ghp_16C7e42F292c6912E7710c838347Ae178B4a}\n",
			"secret.literal", 2, 13},
		{"a token in place of a name", "secrets:\n  ghp_16C7e42F292c6912E7710c838347Ae178B4a: {from: 'env:A'}\n",
			"secret.literal", 2, 3},
		{"a token for its hash", "gateway: {auth: {tokens: {ci: waldo_secret}}}\n", "secret.literal", 1, 31},
		{
			"listening to the world without a name",
			"gateway: {listen: '0.0.0.0:80', auth: {tokens: {ci: " +
				"'sha256:0000000000000000000000000000000000000000000000000000000000000000'}}}\n", "listen.name", 1, 19,
		},
		{"an issuer without a name of ours", "gateway: {auth: {oidc: {issuer: 'https://i/'}}}\n", "listen.name", 1, 17},
		{"an issuer over http", "gateway: {auth: {oidc: {issuer: 'http://i.example.com/'}}}\n", "value.url", 1, 33},
		{"an origin with a path", "gateway: {origins: ['https://a.example.com/x']}\n", "value.url", 1, 20},
		{"listening to the world", "gateway: {listen: '0.0.0.0:80'}\n", "listen.open", 1, 19},
		{"listening to the world by an empty host", "gateway: {listen: ':80'}\n", "listen.open", 1, 19},
		{"a version that does not exist", "version: 2\n", "value.range", 1, 10},
		{"a time without a unit", "approval: {timeout: '10'}\n", "value.type", 1, 21},
		{"columns count characters", "environment: {ü: 1}\n", "value.type", 1, 14},
	} {
		t.Run(row.why, func(t *testing.T) {
			cfg, problems := Parse("w.yaml", []byte(row.text))
			if cfg != nil {
				t.Errorf("a configuration came back")
			}
			i := slices.IndexFunc(problems, func(p contract.Problem) bool { return p.Code == row.code })
			if i < 0 {
				t.Fatalf("want %s, got %v", row.code, problems)
			}
			at := problems[i].At
			if at.Line != row.line || row.column != 0 && at.Column != row.column {
				t.Errorf("%s at %d:%d, want %d:%d", row.code, at.Line, at.Column, row.line, row.column)
			}
		})
	}
}

func TestParseWarns(t *testing.T) {
	const server = "servers:\n  s: {command: [a]}\n"
	const login = "gateway: {url: 'https://w.example/mcp', auth: {oidc: {issuer: 'https://i.example'}}}\n"
	const hook = "webhooks:\n  h: {scheme: github, secret: 'env:X', deliver: {tool: s.x}}\n"
	for _, row := range []struct {
		why, text string
		codes     []string
	}{
		{"an empty file says nothing", "# nothing\n", []string{"config.empty"}},
		{"a server that is not there", "capabilities:\n  x.y: {transport: mcp, mode: read}\n", []string{"server.unbound"}},
		{"a server by key that is not there", "capabilities:\n  y: {server: x, mode: read}\n", []string{"server.unbound"}},
		{"no transport", "capabilities:\n  y: {mode: read}\n", []string{"transport.absent"}},
		{"a server that nobody may call", server, []string{"server.unused"}},
		{"a server that a pattern reaches", server + "capabilities:\n  s.*: {mode: read}\n", nil},
		{
			"servers of any name", server +
				"capabilities:\n  '*.*': {transport: mcp, mode: read}\n  '*x.send': {transport: mcp, mode: read}\n", nil,
		},
		{"a server that is not there", server + "capabilities:\n  s.*: {mode: read}\n  'x.*': {transport: mcp, mode: read}\n",
			[]string{"server.unbound"}},
		{"a server that every pattern reaches", server + "capabilities:\n  '*': {mode: read}\n", nil},
		{"a role without members", server + "capabilities:\n  s.x: {mode: read, approval: {by: boss}}\n",
			[]string{"role.unbound"}},
		{
			"a role with members", server +
				"approval: {by: {boss: [alice]}}\ncapabilities:\n  s.x: {mode: read, approval: {by: boss}}\n", nil,
		},
		{"people who log in and can approve", login + server + "capabilities:\n  s.x: {mode: write, approval: always}\n",
			[]string{"people.absent"}},
		{"people with principals", login + server + "approval: {people: {alice: ['oidc:alice@corp.example']}}\n" +
			"capabilities:\n  s.x: {mode: write, approval: always}\n", nil},
		{"people who are asked nothing", login + server + "capabilities:\n  s.x: {mode: read, approval: none}\n", nil},
		{"a secret by name", "servers:\n  s: {command: [a], secrets: {T: token}}\ncapabilities:\n  s.x: {mode: read}\n",
			[]string{"secret.unbound"}},
		{
			"a secret of this environment",
			"environment: prod\nsecrets: {token: {environments: {prod: 'env:X'}}}\nservers:\n  s: {command: [a], secrets: {T: " +
				"token}}\ncapabilities:\n  s.x: {mode: read}\n", nil,
		},
		{
			"a secret of another environment",
			"secrets: {token: {environments: {prod: 'env:X'}}}\nservers:\n  s: {command: [a], secrets: {T: token}}\n" +
				"capabilities:\n  s.x: {mode: read}\nenvironment: dev\n", []string{"secret.unbound"},
		},
		{
			"a secret by variable", "servers:\n  s: {command: [a], secrets: {T: 'env:TOKEN'}}\ncapabilities:\n" +
				"  s.x: {mode: read}\n", nil,
		},
		{"a webhook that a contract allows", server + "capabilities:\n  s.*: {mode: read}\n" + hook, nil},
		{"a webhook that no contract allows", server + "capabilities:\n  s.y: {mode: read}\n" + hook,
			[]string{"webhook.denied"}},
		{"what the gateway answers", server + "capabilities:\n  s.x: {mode: read}\n  search_tools: {mode: read}\n",
			[]string{"contract.useless"}},
		{"a condition on high risk", server + "capabilities:\n  s.x: {mode: high_risk, approval: {when: 'false'}}\n", nil},
	} {
		t.Run(row.why, func(t *testing.T) {
			cfg, problems := Parse("w.yaml", []byte(row.text))
			if len(problems) > 0 {
				t.Fatal(problems)
			}
			var got []string
			for _, w := range cfg.Warnings {
				got = append(got, w.Code)
			}
			if !slices.Equal(got, row.codes) {
				t.Errorf("warnings %v, want %v", cfg.Warnings, row.codes)
			}
		})
	}
}

// A missing key takes its strictest value: each line is a permission that needs its key.
func TestAnEmptyEntryIsStrict(t *testing.T) {
	cfg, problems := Parse("w.yaml", []byte("capabilities:\n  a.b: {}\n"))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	c := cfg.Contracts[0]
	switch {
	case c.Transport != "":
		t.Errorf("transport %q", c.Transport)
	case c.Mode != contract.HighRisk || c.Danger != 3 || c.Isolation != "gvisor":
		t.Errorf("mode %s danger %d isolation %s", c.Mode, c.Danger, c.Isolation)
	case c.Approval.When != contract.Always || c.Network.Internal || c.Network.Allow != nil ||
		c.Filesystem != contract.NoFiles || c.Secrets != nil:
		t.Errorf("approval %v network %v filesystem %v secrets %v", c.Approval, c.Network, c.Filesystem, c.Secrets)
	case c.Timeout != 30*time.Second || c.ResponseBudget != 65536 || c.Retry.Max != 0 || c.Trust != "untrusted":
		t.Errorf("timeout %s budget %d retry %v trust %s", c.Timeout, c.ResponseBudget, c.Retry, c.Trust)
	case !slices.Equal(c.Redact, []string{"secrets"}):
		t.Errorf("redact %v", c.Redact)
	}
}

func TestSecretsAreAlwaysRedacted(t *testing.T) {
	for _, lines := range []string{"redact: [email]", "redact: none", "redact: [secrets, email]"} {
		cfg, problems := Parse("w.yaml", []byte("redaction: {model: [phone]}\n"+entryWith(lines)))
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		if !slices.Contains(cfg.Contracts[0].Redact, "secrets") || !slices.Contains(cfg.Redaction.Model, "secrets") {
			t.Errorf("%s: %v %v", lines, cfg.Contracts[0].Redact, cfg.Redaction.Model)
		}
	}
}

// A file that does not name a built-in denies it, as it denies everything else that it does not name.
func TestBuiltInsHoldWithoutAFileAlone(t *testing.T) {
	if n := len(Default().Contracts); n != 6 {
		t.Fatalf("control: %d contracts without a file", n)
	}
	for _, text := range []string{
		"", "version: 1\n", "capabilities:\n  exec: {mode: read}\n", "capabilities:\n  run_shell: deny\n",
	} {
		cfg, problems := Parse("w.yaml", []byte(text))
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		for _, c := range cfg.Contracts {
			if c.BuiltIn || !strings.Contains(text, c.Pattern) {
				t.Errorf("%q: a contract for %s that nobody wrote", text, c.Pattern)
			}
		}
	}
}

// The ways in which people write "never" each name the line that says it.
func TestDenyIsAContract(t *testing.T) {
	cfg, problems := Parse("w.yaml",
		[]byte("servers: {s: {command: [a]}}\ncapabilities:\n  s.*: {mode: read}\n  s.delete_*: deny\n  none.x: deny\n"))
	if len(problems) > 0 || len(cfg.Warnings) > 0 || len(cfg.Contracts) != 3 {
		t.Fatal(problems, cfg)
	}
	for i, want := range []bool{false, true, true} {
		if cfg.Contracts[i].Denied != want {
			t.Errorf("%s: denied %v", cfg.Contracts[i].Pattern, !want)
		}
	}
	for _, entry := range []string{
		"{deny: true}", "{mode: deny}", "{mode: never}", "{approval: never}", "{approval: deny}", "{rules: [{deny: true}]}",
		"allow", "denied", "false", "7", "[deny]", "''",
	} {
		_, problems := Parse("w.yaml", []byte("capabilities:\n  s.delete_*: "+entry+"\n"))
		if len(problems) == 0 {
			t.Errorf("%s was taken", entry)
		} else if entry != "[deny]" && !strings.Contains(problems[0].Hint, "s.delete_*: deny") {
			t.Errorf("%s: hint %q", entry, problems[0].Hint)
		}
	}
	// control: a slip that has nothing to do with deny keeps its own hint
	if _, problems := Parse("w.yaml", []byte("capabilities:\n  s.x: {mode: raed}\n")); problems[0].Hint !=
		`did you mean "read"?` {
		t.Errorf("%q", problems[0].Hint)
	}
}

func TestInitIsSound(t *testing.T) {
	for _, folder := range []string{"/home/a/project", ".", "/tmp/evil\ncapabilities: {}", "/tmp/\u202ex"} {
		text := starter.Init(folder)
		cfg, problems := Parse("waldo.yaml", text)
		if len(problems) > 0 || len(cfg.Warnings) > 0 {
			t.Errorf("%q: %v %v", folder, problems, cfg)
		}
		if len(cfg.Contracts) != 12 {
			t.Errorf("%q: %d contracts", folder, len(cfg.Contracts))
		}
	}
}

// Keys of the top that stand in a contract, and this machine as a host: the hint says what to write.
func TestNetworkHints(t *testing.T) {
	for _, row := range []struct{ key, hint string }{
		{"addresses: {a.example.com: [127.0.0.1]}", "addresses: belongs at the top of the file"},
		{"internal: [a.example.com]", "internal: belongs at the top of the file"},
		{`allow: [localhost]`, "name its port, as in localhost:5432"},
		{`allow: ["localhost:5432/v1/*"]`, "name its port, as in localhost:5432"},
		{`allow: ["localhost:53"]`, "name its port, as in localhost:5432"},
	} {
		_, problems := Parse("waldo.yaml", []byte(sb("network:", "  "+row.key)))
		if len(problems) == 0 || problems[0].Hint != row.hint {
			t.Errorf("%s: %v", row.key, problems)
		}
	}
	if _, problems := Parse("waldo.yaml", []byte(sb("network:", `  allow: ["localhost:5432"]`))); len(problems) > 0 {
		t.Errorf("a port of this machine: %v", problems)
	}
}

// TestOwnPorts: a sandbox is not let to waldo's gateway or console of the same file. The controls are other ports.
func TestOwnPorts(t *testing.T) {
	for _, row := range []struct{ gateway, port, code string }{
		{"", "7676", "host.own"},
		{"", "7677", "host.own"},
		{"", "7678", ""},
		{"gateway: {listen: \"127.0.0.1:7070\"}\n", "7070", "host.own"},
		{"gateway: {listen: \"[::1]:7070\"}\n", "7070", "host.own"},
		{"gateway: {listen: \"127.0.0.1:7070\"}\n", "7676", ""},
	} {
		text := sb("network:", `  allow: [api.example.com, "localhost:`+row.port+`"]`)
		line := strings.Count(text, "\n") // of allow, the last one
		_, problems := Parse("waldo.yaml", []byte(text+row.gateway))
		if row.code == "" && len(problems) == 0 {
			continue
		}
		if len(problems) != 1 || problems[0].Code != row.code || problems[0].At.Line != line || problems[0].At.Column != 32 {
			t.Errorf("%s%s: %v", row.gateway, row.port, problems)
		}
	}
}

func TestRender(t *testing.T) {
	text := "capabilities:\n  a.b:\n    transprt: mcp\n"
	_, problems := Parse("waldo.yaml", []byte(text))
	want := "waldo.yaml:3:5: key.unknown: unknown key \"transprt\" in a capability\n" +
		"    3 |     transprt: mcp\n" +
		"      |     ^\n" +
		"hint: did you mean \"transport\"?\n"
	if got := problems[0].Render(text); got != want {
		t.Errorf("got:\n%swant:\n%s", got, want)
	}
}

func TestRenderShowsNoSecret(t *testing.T) {
	const token = "ghp_16C7e42F292c6912E7710c838347Ae178B4a"
	for _, text := range []string{
		"servers:\n  s: {command: [a], secrets: {T: " + token + "}}\n",
		"servers:\n  s:\n    command: [a]\n    env:\n      T: " + token + "\n",
		"servers:\n  s: {url: 'https://u:" + token + "@example.com/'}\n",
		"servers: {s: {url: 'https://u:hunter2@example.com/', bogus: 1}}\n",
		sb("secrets: " + token),
		sb("tokne: " + token),
		"servers: {s: {command: [a], env: {A: hunter2, T: sk-ant-hunter2hunter2}, bogus: hunter2}}\n# " + token + "\n",
	} {
		_, problems := Parse("w.yaml", []byte(text))
		if len(problems) == 0 {
			t.Fatalf("sound: %s", text)
		}
		for _, p := range problems {
			if strings.Contains(p.Render(text), token) || strings.Contains(p.Render(text), token[:20]) ||
				strings.Contains(p.Render(text), "hunter2@") {
				t.Errorf("shown: %s", p.Render(text))
			}
		}
	}
}

func TestResolve(t *testing.T) {
	cfg, problems := Parse("w.yaml", []byte(`servers:
  github: {command: [a]}
capabilities:
  '*': {mode: read}
  github.make: {mode: write, tool: create-it}
  ticket: {server: github}
`))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	for _, row := range []struct {
		why, pattern, name string
		transport          contract.Transport
		server, tool       string
	}{
		{"the first part names a server", "*", "github.a", contract.MCP, "github", "a"},
		{"the tool keeps its dots", "*", "github.a.b", contract.MCP, "github", "a.b"},
		{"a name without a server behind it", "*", "gitlab.a", "", "", ""},
		{"one of waldo's own", "*", "run_python", contract.SandboxedExec, "", ""},
		{"a tool by another name", "github.make", "github.make", contract.MCP, "github", "create-it"},
		{"a server by another name", "ticket", "ticket", contract.MCP, "github", "ticket"},
	} {
		i := slices.IndexFunc(cfg.Contracts, func(c contract.Contract) bool { return c.Pattern == row.pattern })
		c := cfg.Contracts[i].Resolve(row.name, cfg)
		if c.Transport != row.transport || c.Server != row.server || c.Tool != row.tool {
			t.Errorf("%s: %q %q %q", row.why, c.Transport, c.Server, c.Tool)
		}
	}
}

// TestWideHosts: a wildcard that strangers share is warned of where it stands.
func TestWideHosts(t *testing.T) {
	const text = "version: 1\ncapabilities:\n  run_python:\n    transport: sandboxed_exec\n    network: {allow: [%s]}\n"
	for _, row := range []struct {
		host string
		warn bool
	}{
		{"'*.co.uk'", true}, {"'*.github.io'", true}, {"'GET *.s3.amazonaws.com/x/*'", true}, {"'*.example.com'", false},
		{"me.github.io", false},
	} {
		cfg, problems := Parse("waldo.yaml", []byte(fmt.Sprintf(text, row.host)))
		if len(problems) > 0 {
			t.Fatalf("%s: %v", row.host, problems)
		}
		var wide []contract.Problem
		for _, w := range cfg.Warnings {
			if w.Code == "host.wide" {
				wide = append(wide, w)
			}
		}
		if (len(wide) == 1) != row.warn ||
			row.warn && (wide[0].At.Line != 5 || wide[0].At.Column != 23 || wide[0].At.File != "waldo.yaml") {
			t.Errorf("%s: %+v", row.host, wide)
		}
	}
}
