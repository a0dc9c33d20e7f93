package main

import (
	"maps"

	"waldo/internal/app"
	"waldo/internal/cli"
	"waldo/internal/cli/records"
	"waldo/internal/config/starter"
	"waldo/internal/feature"
	"waldo/internal/feature/a2a"
	"waldo/internal/feature/agent"
	"waldo/internal/feature/backup"
	"waldo/internal/feature/changes"
	"waldo/internal/feature/console"
	"waldo/internal/feature/delegation"
	"waldo/internal/feature/e2b"
	"waldo/internal/feature/evidence"
	"waldo/internal/feature/fetch"
	"waldo/internal/feature/files"
	"waldo/internal/feature/gen"
	"waldo/internal/feature/hosts"
	"waldo/internal/feature/kubernetes"
	"waldo/internal/feature/launch"
	"waldo/internal/feature/reliability"
	"waldo/internal/feature/rest"
	"waldo/internal/feature/service"
	"waldo/internal/feature/sql"
	"waldo/internal/feature/store"
	"waldo/internal/feature/telemetry"
	"waldo/internal/feature/threatmodel"
	"waldo/internal/feature/webhook"
	"waldo/internal/feature/worker"
)

// features lists the features of waldo. Without its line, waldo works without the feature.
var features = []feature.Feature{
	a2a.Feature,
	agent.Feature,
	backup.Feature,
	console.Feature,
	e2b.Feature,
	delegation.Feature,
	evidence.Feature,
	fetch.Feature,
	files.Feature,
	changes.Feature,
	gen.Feature,
	hosts.Feature,
	kubernetes.Feature,
	launch.Feature,
	reliability.Feature,
	rest.Feature,
	service.Feature,
	sql.Feature,
	store.Feature,
	threatmodel.Feature,
	telemetry.Feature,
	webhook.Feature,
	worker.Feature,
}

// withFeatures returns the context of commands whose applications open the features.
func withFeatures(g *cli.Context) *cli.Context {
	g.Lines, g.Profiles = records.Lines{}, starter.Profiles()
	for _, f := range features {
		if f.Open != nil {
			g.Openers = append(g.Openers, f.Open)
		}
		if f.Tools != nil {
			g.Tools = append(g.Tools, f.Tools)
		}
		if f.Log != nil {
			g.LogCommands = append(g.LogCommands, f.Log(g)...)
		}
		if f.Evidence != nil {
			g.Evidence = f.Evidence
		}
		if f.Profiles != nil {
			g.Profiles = append(g.Profiles, f.Profiles()...)
		}
		maps.Copy(g.Lines, f.Records)
	}
	return g
}

// child does not return in a process that waldo started as a part of itself.
func child() {
	app.Child()
	for _, f := range features {
		if f.Child != nil {
			f.Child()
		}
	}
}
