package a2a

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"
	"unicode"

	"waldo/internal/model/call"
	"waldo/internal/protocol/jsonrpc"
	"waldo/internal/protocol/strictjson"
)

// The version of the protocol (A2A specification §3.6), and its media type.
const (
	version   = "1.0"
	mediaType = "application/a2a+json"
)

// State is the state of a task (§4.1.3).
type State string

// The states that waldo gives a task.
const (
	Submitted     State = "TASK_STATE_SUBMITTED"
	Working       State = "TASK_STATE_WORKING"
	InputRequired State = "TASK_STATE_INPUT_REQUIRED"
	Completed     State = "TASK_STATE_COMPLETED"
	Failed        State = "TASK_STATE_FAILED"
	Canceled      State = "TASK_STATE_CANCELED"
	Rejected      State = "TASK_STATE_REJECTED"
	authRequired  State = "TASK_STATE_AUTH_REQUIRED" // of others
)

// ended reports whether a task in this state never changes.
func (s State) ended() bool {
	return s == Completed || s == Failed || s == Canceled || s == Rejected
}

// rests reports whether a client waits no longer for a task in this state.
func (s State) rests() bool { return s.ended() || s == InputRequired || s == authRequired }

// Task is a task as clients see it (§4.1.1).
type Task struct {
	ID        string         `json:"id"`
	ContextID string         `json:"contextId,omitempty"`
	Status    Status         `json:"status"`
	Artifacts []Artifact     `json:"artifacts,omitempty"`
	History   []Message      `json:"history,omitempty"`
	Metadata  map[string]any `json:"metadata,omitempty"`
}

// Status is the state of a task, with the agent's message about it.
type Status struct {
	State     State    `json:"state"`
	Message   *Message `json:"message,omitempty"`
	Timestamp string   `json:"timestamp,omitempty"`
}

// Message is one message (§4.1.4).
type Message struct {
	MessageID  string           `json:"messageId"`
	ContextID  string           `json:"contextId,omitempty"`
	TaskID     string           `json:"taskId,omitempty"`
	Role       string           `json:"role"`
	Parts      []Part           `json:"parts"`
	Metadata   strictjson.Value `json:"metadata,omitzero"`
	Extensions []string         `json:"extensions,omitempty"`
	References []string         `json:"referenceTaskIds,omitempty"`
}

// The roles of a message.
const (
	roleUser  = "ROLE_USER"
	roleAgent = "ROLE_AGENT"
)

// Part is one piece of a message or artifact: exactly one of Text, Raw, URL and Data (§4.1.6).
type Part struct {
	Text      *string          `json:"text,omitempty"`
	Raw       *string          `json:"raw,omitempty"` // base64
	URL       *string          `json:"url,omitempty"`
	Data      strictjson.Value `json:"data,omitzero"`
	Metadata  strictjson.Value `json:"metadata,omitzero"`
	Filename  string           `json:"filename,omitempty"`
	MediaType string           `json:"mediaType,omitempty"`
}

func textPart(s string) Part { return Part{Text: &s} }

// Artifact is a result of a task (§4.1.7).
type Artifact struct {
	ArtifactID string `json:"artifactId"`
	Name       string `json:"name,omitempty"`
	Parts      []Part `json:"parts"`
}

// Event is one member of a stream, and the body of a push notification (§3.2.3).
type Event struct {
	Task     *Task           `json:"task,omitempty"`
	Status   *StatusUpdate   `json:"statusUpdate,omitempty"`
	Artifact *ArtifactUpdate `json:"artifactUpdate,omitempty"`
}

// StatusUpdate is the new state of a task (§4.2.1).
type StatusUpdate struct {
	TaskID    string         `json:"taskId"`
	ContextID string         `json:"contextId"`
	Status    Status         `json:"status"`
	Metadata  map[string]any `json:"metadata,omitempty"`
}

// ArtifactUpdate brings an artifact of a task (§4.2.2).
type ArtifactUpdate struct {
	TaskID    string   `json:"taskId"`
	ContextID string   `json:"contextId"`
	Artifact  Artifact `json:"artifact"`
	LastChunk bool     `json:"lastChunk,omitempty"`
}

// PushConfig is where a client receives the changes of a task (§4.3.1). Token and credentials are written, and never shown.
type PushConfig struct {
	Tenant         string      `json:"tenant,omitempty"`
	ID             string      `json:"id,omitempty"`
	TaskID         string      `json:"taskId,omitempty"`
	URL            string      `json:"url"`
	Token          string      `json:"token,omitempty"`
	Authentication *Credential `json:"authentication,omitempty"`
}

// Credential is how waldo authenticates to a receiver of push notifications (§4.3.2).
type Credential struct {
	Scheme      string `json:"scheme"`
	Credentials string `json:"credentials,omitempty"`
}

// sending are the parameters of SendMessage (§3.2.1).
type sending struct {
	Tenant        string  `json:"tenant"`
	Message       Message `json:"message"`
	Configuration struct {
		HistoryLength     *int        `json:"historyLength"`
		ReturnImmediately bool        `json:"returnImmediately"`
		Push              *PushConfig `json:"taskPushNotificationConfig"`
	} `json:"configuration"`
	Metadata strictjson.Value `json:"metadata"`
	key      string           // of the header
	trace    call.Trace       // of the headers
}

// naming are the parameters of the operations on one task, and on its push configurations.
type naming struct {
	Tenant        string `json:"tenant"`
	ID            string `json:"id"`
	TaskID        string `json:"taskId"`
	HistoryLength *int   `json:"historyLength"`
}

// listing are the parameters of ListTasks.
type listing struct {
	Tenant           string `json:"tenant"`
	ContextID        string `json:"contextId"`
	Status           State  `json:"status"`
	PageSize         *int   `json:"pageSize"`
	PageToken        string `json:"pageToken"`
	HistoryLength    *int   `json:"historyLength"`
	After            string `json:"statusTimestampAfter"`
	IncludeArtifacts bool   `json:"includeArtifacts"`
}

// fault is an error answer of either binding (§5.4).
type fault struct {
	code   int    // of JSON-RPC
	status int    // of HTTP
	word   string // of google.rpc.Code
	reason string // of google.rpc.ErrorInfo
	text   string
}

func (f *fault) Error() string { return f.text }

// The errors of A2A.
var (
	noTask        = fault{-32001, http.StatusNotFound, "NOT_FOUND", "TASK_NOT_FOUND", ""}
	notCancelable = fault{-32002, http.StatusConflict, "FAILED_PRECONDITION", "TASK_NOT_CANCELABLE", ""}
	unsupported   = fault{-32004, http.StatusBadRequest, "UNIMPLEMENTED", "UNSUPPORTED_OPERATION", ""}
	contentType   = fault{-32005, http.StatusUnsupportedMediaType, "INVALID_ARGUMENT", "CONTENT_TYPE_NOT_SUPPORTED", ""}
	noVersion     = fault{-32009, http.StatusBadRequest, "UNIMPLEMENTED", "VERSION_NOT_SUPPORTED", ""}
	badParams     = fault{jsonrpc.CodeParams, http.StatusBadRequest, "INVALID_ARGUMENT", "INVALID_PARAMS", ""}
	badJSON       = fault{jsonrpc.CodeParse, http.StatusBadRequest, "INVALID_ARGUMENT", "JSON_PARSE", ""}
	badRequest    = fault{jsonrpc.CodeInvalid, http.StatusBadRequest, "INVALID_ARGUMENT", "INVALID_REQUEST", ""}
	noMethod      = fault{jsonrpc.CodeNoMethod, http.StatusNotFound, "NOT_FOUND", "METHOD_NOT_FOUND", ""}
	tooMuch       = fault{jsonrpc.CodeBusy, http.StatusTooManyRequests, "RESOURCE_EXHAUSTED", "RESOURCE_EXHAUSTED", ""}
	internal      = fault{jsonrpc.CodeInternal, http.StatusInternalServerError, "INTERNAL", "INTERNAL", ""}
)

func (f fault) says(format string, a ...any) *fault {
	f.text = fmt.Sprintf(format, a...)
	return &f
}

// details are the objects that say which error it is, for a program.
func (f *fault) details() []map[string]any {
	return []map[string]any{{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": f.reason,
		"domain": "a2a-protocol.org", "metadata": map[string]string{"timestamp": stamp(time.Now())}}}
}

// rpc is the error as an answer of JSON-RPC (§9.5).
func (f *fault) rpc(id strictjson.Value) []byte {
	e := jsonrpc.Errorf(f.code, "%s", f.text)
	if b, err := json.Marshal(f.details()); err == nil {
		e.Data, _ = strictjson.Parse(b)
	}
	return jsonrpc.Answer(id, nil, e)
}

// body is the error as the body of an answer of HTTP+JSON (§11.6).
func (f *fault) body() map[string]any {
	return map[string]any{"error": map[string]any{"code": f.status, "status": f.word, "message": f.text,
		"details": f.details()}}
}

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

// Bounds of what a client sends.
const (
	maxParts   = 64
	maxName    = 128     // bytes of an id
	maxHistory = 50      // messages of one task
	maxURL     = 2 << 10 // of a receiver
)

// nameable reports whether a client's text can be an id: printable ASCII.
func nameable(s string) bool {
	return len(s) > 0 && len(s) <= maxName && !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' })
}

// check returns what is wrong with a client's message.
func (m *Message) check() *fault {
	switch {
	case !nameable(m.MessageID):
		return badParams.says("message.messageId must be 1 to %d printable characters", maxName)
	case m.Role != roleUser:
		return badParams.says("message.role must be %s", roleUser)
	case len(m.Parts) == 0 || len(m.Parts) > maxParts:
		return badParams.says("message.parts must have 1 to %d parts", maxParts)
	case m.ContextID != "" && !nameable(m.ContextID):
		return badParams.says("message.contextId must be at most %d printable characters", maxName)
	case !m.Metadata.IsZero() && m.Metadata.Kind() != '{':
		return badParams.says("message.metadata must be an object")
	case len(m.Extensions) > maxParts || len(m.References) > maxParts:
		return badParams.says("message.extensions and message.referenceTaskIds have at most %d entries", maxParts)
	}
	for i, p := range m.Parts {
		n := 0
		for _, has := range []bool{p.Text != nil, p.Raw != nil, p.URL != nil, !p.Data.IsZero()} {
			if has {
				n++
			}
		}
		if n != 1 {
			return badParams.says("message.parts[%d] must have exactly one of text, raw, url and data", i)
		}
		if p.Raw != nil || p.URL != nil {
			return contentType.says("message.parts[%d] is a file: waldo's skills take text and data", i)
		}
	}
	return nil
}

// printable shortens a text of a client for an error.
func printable(s string) string {
	s = strings.ToValidUTF8(s[:min(len(s), 80)], "")
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
}
