package jsonrpc

// The revisions of MCP. Legacy ones open with initialize; from Modern on, every request carries its
// revision in _meta (MCP basic/versioning).
const (
	Modern = "2026-07-28"
	Legacy = "2025-11-25" // the newest legacy revision
)

// LegacyRevisions are the legacy revisions spoken here, newest first.
var LegacyRevisions = []string{Legacy, "2025-06-18", "2025-03-26", "2024-11-05"}

// The names that a modern message uses inside _meta.
const (
	MetaRevision     = "io.modelcontextprotocol/protocolVersion"
	MetaClient       = "io.modelcontextprotocol/clientInfo"
	MetaServer       = "io.modelcontextprotocol/serverInfo"
	MetaCapabilities = "io.modelcontextprotocol/clientCapabilities"
	MetaLogLevel     = "io.modelcontextprotocol/logLevel"
	MetaSubscription = "io.modelcontextprotocol/subscriptionId"
)

// Implementation names a program, as MCP does.
type Implementation struct {
	Name    string `json:"name"`
	Version string `json:"version"`
}
