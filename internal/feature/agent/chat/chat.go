// Package chat holds a conversation with a language model as values: requests to a provider, and its answers.
package chat

import "encoding/json"

// Role says who wrote a message.
type Role string

// The roles. Results of tools are in messages of the user, as in the API of Anthropic.
const (
	User      Role = "user"
	Assistant Role = "assistant"
)

// Message is one turn. It holds at least one block.
type Message struct {
	Role   Role    `json:"role"`
	Blocks []Block `json:"blocks"`
}

// Block is a text, a call that the model asks for, or the result of one. Exactly one field is set.
type Block struct {
	Text   string  `json:"text,omitempty"`
	Call   *Call   `json:"call,omitempty"`
	Result *Result `json:"result,omitempty"`
}

// Call is a tool call that the model asks for.
type Call struct {
	ID    string          `json:"id"`              // unique in the conversation
	Tool  string          `json:"tool"`            // as the request named it; a model can invent others
	Input json.RawMessage `json:"input"`           // a JSON object, "{}" with Fault
	Fault string          `json:"fault,omitempty"` // why the arguments are no JSON object; empty: they are
}

// Result is the answer to one call.
type Result struct {
	CallID string `json:"call_id"` // the ID of Call
	Tool   string `json:"tool"`
	Text   string `json:"text"`
	Error  bool   `json:"error,omitempty"`
}

// Tool is a tool that the model can ask for.
type Tool struct {
	Name        string // 1 to 64 letters, digits, '_' and '-'
	Description string
	Schema      json.RawMessage // JSON Schema of an object
}

// Request is a question to a model.
type Request struct {
	System   string
	Messages []Message
	Tools    []Tool
	Most     int // tokens of the answer
}

// Stop says why a model ended its turn. The zero value: it has not ended, the answer is not whole.
type Stop string

// The ends of a turn.
const (
	End     Stop = "end"
	Calls   Stop = "calls"   // it waits for results of tools
	Length  Stop = "length"  // the answer was cut at Request.Most; its calls are left out
	Refused Stop = "refused" // the model or its provider declines
)

// Usage counts tokens, as the provider states them.
type Usage struct {
	Input  int `json:"input"`
	Output int `json:"output"`
}

// Sum returns all tokens. A provider's statement below zero counts as none.
func (u Usage) Sum() int { return max(u.Input, 0) + max(u.Output, 0) }

// Reply is one answer of a model.
type Reply struct {
	Blocks   []Block `json:"blocks"`
	Stop     Stop    `json:"stop"`
	Usage    Usage   `json:"usage"`
	Provider string  `json:"provider"` // kind and model, as in "ollama qwen2.5:7b"
}

// Watch follows an answer while it comes in. Both functions must be set.
type Watch struct {
	Text func(text string) // a part of the answer's text
	// Retry says that the parts so far do not count: the provider failed, and is asked again or another is.
	Retry func(why string)
}
