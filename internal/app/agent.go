package app

import (
	"waldo/internal/app/agentrun"
	"waldo/internal/core/session"
	"waldo/internal/model/call"
)

// Agents runs the agent of the configuration.
func (h *App) Agents() *agentrun.Service {
	return &agentrun.Service{State: h.State, Config: h.Config, Sessions: h.Sessions, Pipeline: h.options(),
		Secret: h.secrets.Get, Hide: h.clean, Lasting: func(n call.Session) { h.lasting.Store(n, true) },
		Done: func(n session.Info) { h.Tidy(n) }, Leave: h.forget}
}
