package contract

import (
	"time"

	"waldo/internal/model/secret"
)

// Agent is the agent of waldo agent. It needs a provider.
type Agent struct {
	Name      string // its principal is agent:NAME
	Providers []Provider
	MaxSteps  int               // answers of the model in one conversation
	MaxTokens int               // of requests and answers in one conversation
	Timeout   time.Duration     // of one run
	System    string            // the operator's instructions to the model
	Tasks     map[string]string // webhook to the task of the agent that it starts
	Expose    bool              // agents elsewhere may give it tasks over A2A
}

// Provider is a language model behind an API.
type Provider struct {
	Kind    string // anthropic, openai or ollama
	URL     string // empty: the usual one of the kind
	Model   string
	Key     secret.Ref    // empty: not sent
	Timeout time.Duration // the longest silence of the provider
	At      Position
}
