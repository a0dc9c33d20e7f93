package contract

import (
	"time"

	"waldo/internal/model/secret"
)

// Webhook is one sender of signed events.
type Webhook struct {
	Name     string
	At       Position
	Scheme   string     // github, stripe, slack or standard
	Secret   secret.Ref // of its signatures
	Previous secret.Ref // signs too, during a rotation; empty: none
	Window   time.Duration
	MaxKB    int  // of a body
	Rate     Rate // of accepted webhooks
	Tries    int  // before one is dead
	Agent    bool // deliver: agent
	Deliver  HookTool
}

// HookTool is the capability that is called with each webhook. Args are JSON values. A text such as "$payload" in them
// stands for a value of the webhook.
type HookTool struct {
	Tool string
	Args map[string]any
}
