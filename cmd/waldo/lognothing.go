package main

import (
	"context"
	"io"
	"strings"

	"waldo/internal/core/audit"
	"waldo/internal/model/display"
)

// filter is one filter of waldo log, alone.
type filter struct {
	name, value string
	alone       audit.Selection
}

// filters returns the filters that select something.
func (f *logFlags) filters() (all []filter) {
	for _, one := range []filter{
		{"since", f.since, audit.Selection{Since: f.Since}}, {"until", f.until, audit.Selection{Until: f.Until}},
		{"principal", f.Principal, audit.Selection{Principal: f.Principal}},
		{"agent", f.Agent, audit.Selection{Agent: f.Agent}}, {"channel", f.Channel, audit.Selection{Channel: f.Channel}},
		{"capability", f.Capability, audit.Selection{Capability: f.Capability}},
		{"category", f.Category, audit.Selection{Category: f.Category}}, {"host", f.Host, audit.Selection{Host: f.Host}},
		{"effect", f.Effect, audit.Selection{Effect: f.Effect}}, {"kind", f.Kind, audit.Selection{Kind: f.Kind}},
		{"call", f.call, audit.Selection{About: f.About}},
	} {
		if one.value != "" {
			all = append(all, one)
		}
	}
	if f.Denied {
		all = append(all, filter{"denied", "", audit.Selection{Denied: true}})
	}
	return all
}

// nothing prints which filters match no record, where no record was selected, and what the log has instead. Errors are
// left to the selection itself.
func (f *logFlags) nothing(ctx context.Context, w io.Writer, dir string) {
	all, silent := f.filters(), false
	var names []string
	for _, one := range all {
		names = append(names, "--"+one.name)
		one.alone.Last = 1
		n, err := audit.Select(ctx, dir, one.alone, func(audit.Record) error { return nil })
		if err != nil || n.Matched > 0 {
			continue
		}
		silent = true
		display.Fprintf(w, "no record matches %s\n", strings.TrimSpace("--"+one.name+" "+one.value))
		known, _ := audit.Known(ctx, dir, one.name) // without it only the suggestion is missing
		if near := display.Nearest(one.value, known); near != "" {
			display.Fprintf(w, "hint: did you mean %s?\n", near)
		} else if len(known) > 0 {
			display.Fprintf(w, "hint: the log has %s\n", some(known))
		}
	}
	if !silent && len(all) > 1 {
		display.Fprintf(w, "no record matches all of %s; each alone matches some\n", strings.Join(names, ", "))
	}
}

// some lists the first few names.
func some(names []string) string {
	const most = 8
	if more := len(names) - most; more > 0 {
		return strings.Join(names[:most], ", ") + " and " + display.Count(more, "other")
	}
	return strings.Join(names, ", ")
}
