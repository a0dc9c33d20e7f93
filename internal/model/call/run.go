package call

import (
	"encoding/json"
	"strings"
	"time"

	"waldo/internal/protocol/strictjson"
)

// Run holds the operator's restrictions of one call's sandbox, in addition to its contract. It is part of the
// decision and of the record, and can only narrow the contract. Public alone can widen it, where a human says yes.
type Run struct {
	Name      string   `json:"name,omitempty"`      // of the script, for its errors
	Isolation string   `json:"isolation,omitempty"` // empty: the contract's; another than the contract names is refused
	Template  string   `json:"template,omitempty"`  // the root filesystem; empty: the contract's or the host's
	Input     string   `json:"input,omitempty"`     // a folder of the machine, shown read-only as /workspace/input
	Mounts    []Mount  `json:"mounts,omitempty"`    // if any, only those of the contract's mounts are shown
	Changes   string   `json:"changes,omitempty"`   // what becomes of writes to mounts: keep, review or discard; empty: kept
	Dir       string   `json:"dir,omitempty"`       // where a command starts; empty: the image's folder, or /workspace
	Env       []string `json:"env,omitempty"`       // more of the environment, as K=V; PATH, HOME and TMPDIR stay waldo's
	Hosts     []string `json:"hosts,omitempty"`     // if any, only those of the contract's hosts can be reached
	Public    bool     `json:"public,omitempty"`    // every public host; beyond the contract a human is asked
	Offline   bool     `json:"offline,omitempty"`   // no host can be reached
	Secrets   []string `json:"secrets,omitempty"`   // variables; if any, only those of the contract's secrets are given
	NoTools   bool     `json:"no_tools,omitempty"`  // no bridge even where there could be one
	Whole     bool     `json:"whole,omitempty"`     // /workspace itself is writable and outlives the run
	At        string   `json:"at,omitempty"`        // with Whole: where these files are instead, and /tmp is kept beside them
	Home      string   `json:"home,omitempty"`      // HOME, a writable mount's target; empty: At, or waldo's own
	Path      []string `json:"path,omitempty"`      // folders before those of PATH
	Limits    Limits   `json:"limits,omitzero"`     // zero fields: the default
}

// Mount asks for a file or folder of the machine in the sandbox. Without Writable it is read-only, whatever the contract
// says.
type Mount struct {
	Source   string `json:"source"` // absolute
	Target   string `json:"target"`
	Writable bool   `json:"writable,omitempty"`
}

// Limits are the limits that a run asks for, field by field those of a sandbox; zero: not asked for.
type Limits struct {
	Wall, CPU    time.Duration
	Memory       int64 // bytes
	Pids, Files  int64
	Disk, Inodes int64 // bytes, entries
	Output       int64 // bytes
}

// MarshalJSON writes the limits that are set, in the units of facts.
func (l Limits) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Wall   int64 `json:"wall_ms,omitempty"`
		CPU    int64 `json:"cpu_ms,omitempty"`
		Memory int64 `json:"memory_bytes,omitempty"`
		Pids   int64 `json:"pids,omitempty"`
		Files  int64 `json:"files,omitempty"`
		Disk   int64 `json:"disk_bytes,omitempty"`
		Inodes int64 `json:"inodes,omitempty"`
		Output int64 `json:"output_bytes,omitempty"`
	}{l.Wall.Milliseconds(), l.CPU.Milliseconds(), l.Memory, l.Pids, l.Files, l.Disk, l.Inodes, l.Output})
}

// Digest returns the SHA-256 of the canonical form (RFC 8785), as "sha256:…"; empty for nil.
func (r *Run) Digest() string {
	if r == nil {
		return ""
	}
	return strictjson.Digest(r.json())
}

// Record returns the JSON of a run without the values of its environment, which can hold secrets; nil for nil.
func (r *Run) Record() json.RawMessage {
	if r == nil {
		return nil
	}
	shown := *r
	shown.Env = make([]string, len(r.Env))
	for i, kv := range r.Env {
		shown.Env[i], _, _ = strings.Cut(kv, "=")
	}
	return shown.json()
}

// Args returns Record as arguments, for functions that hide secrets in arguments.
func (r *Run) Args() Args {
	a, err := ParseArgs(r.Record())
	if err != nil {
		return Args{}
	}
	return a
}

func (r *Run) json() []byte {
	b, err := json.Marshal(r) // texts, numbers and booleans alone
	if err == nil {
		var v strictjson.Value
		if v, err = strictjson.Parse(b); err == nil {
			return v.Canonical()
		}
	}
	return []byte(`{"unreadable":true}`) // a text that is not UTF-8
}
