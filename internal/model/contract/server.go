package contract

import (
	"strings"
	"time"

	"waldo/internal/model/secret"
)

// Server is an upstream, and where it runs.
type Server struct {
	Name        string
	At          Position
	Command     []string
	CommandAt   Position
	URL         string
	Peer        bool   // an agent of A2A at the URL, of peers
	CardKey     string // the thumbprint of the key that signs its card; empty: any
	Placement   string // sandbox (the default), workspace or outside
	Isolation   string // of its sandbox: namespace or gvisor; empty: it has none
	Trust       string // Uncovered, or empty
	Network     Network
	Secrets     map[string]secret.Ref // environment variable to secret
	Input       string                // mounts.input: a host folder shown read-only
	Mounts      []Mount               // other files and folders, by target
	Data        string                // the name of a lasting folder that waldo keeps, at DataAt; empty: none
	Env         map[string]string
	IdleTimeout time.Duration
	PerSession  bool   // each session has one of its own
	Limits      Limits // of its sandbox
	Plain       bool   // names: plain
	Asks        Asks
	Auth        Auth     // at a URL
	Tenants     []string `json:",omitempty"` // that its tools can serve; empty: those of its contracts
}

// Holds reports whether the server's sandbox is at least as strong as a level.
func (s Server) Holds(level string) bool {
	return level == s.Isolation || level == "namespace" && s.Isolation == "gvisor"
}

// Mount shows a file or folder of this machine to a sandbox, read-only.
type Mount struct {
	Target string `json:"target"` // an absolute path in the sandbox
	From   string `json:"from"`   // on this machine, as written: Position.Beside makes it whole
	// Writable: the sandbox can change what is in it, and only the disk bounds what it writes.
	Writable bool `json:"writable,omitempty"`
	// with Writable, of a server: repositories in it can be written, but for their hooks and configuration
	Git bool     `json:"git,omitempty"`
	At  Position `json:"-"`
}

// Uncovered is the operator's word that a command outside of sandboxes may load files that no digest covers.
const Uncovered = "uncovered"

// DataAt is where a server finds the lasting folder that `data` gives it.
const DataAt = "/data"

// Within reports whether a clean absolute path is dir or lies below it.
func Within(at, dir string) bool {
	return at == dir || strings.HasPrefix(at, strings.TrimSuffix(dir, "/")+"/")
}

// Asks says what a server may ask of the agent's host during a call. The zero value refuses all.
type Asks struct {
	Form, URL bool // elicitation
	Sampling  bool
	HostRoots bool     // roots: host
	Roots     []string // folders that waldo names in the host's place
}

// Auth is how waldo shows itself to a server at a url. The zero value shows nothing.
type Auth struct {
	Bearer  secret.Ref            // sent as a bearer token
	Headers map[string]secret.Ref // sent as they are; by canonical name
	OAuth   *OAuth
}

// OAuth says how a token is had from the server that issues them.
type OAuth struct {
	Grant    string     // authorization_code, which needs waldo login, or client_credentials
	ClientID string     // as registered with the issuer; empty: waldo registers itself where that is offered
	Secret   secret.Ref // of the client; empty: a public client
	Key      secret.Ref // of the client: its private key, for private_key_jwt; can be empty
	DPoP     string     // offered, required or never
	Metadata string     // the https address of a client metadata document; can be empty
	Scopes   []string   // empty: those that the server asks for
	Issuer   string     // the only issuer that is taken; empty: the one that the server names first
}

// Limits bound the sandbox of a server or of one run. A zero field takes waldo's default. Servers have neither OutputKB
// nor CPU.
type Limits struct {
	MemoryMB, Pids, Files, DiskMB, OutputKB int
	CPU                                     time.Duration // of the whole process tree
}
