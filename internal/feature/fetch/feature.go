package fetch

import (
	"context"

	"waldo/internal/app"
	"waldo/internal/app/advice"
	"waldo/internal/core/policy"
	"waldo/internal/executor/direct"
	"waldo/internal/feature"
	"waldo/internal/model/contract"
)

// Feature is the tool fetch.
var Feature = feature.Feature{
	Name: "fetch",
	Tools: func(k app.Kit) []direct.Tool {
		return []direct.Tool{(&Fetcher{Open: k.Egress.ForCall, Work: k.Work}).Tool()}
	},
	Check: check,
}

// check warns of a contract for fetch that names no host.
func check(_ context.Context, place app.Place, p *policy.Policy) (problems, warnings contract.Problems) {
	for c := range advice.Contracts(place.Config, p) {
		if !c.ForServers() && c.Decides("fetch") && len(c.Network.Allow) == 0 && !c.Network.Internal {
			warnings = append(warnings, c.Problem("", "fetch.hosts", "write the hosts, as in network: {allow: [api.example.com]}",
				"fetch names no host: its calls are denied"))
		}
	}
	return nil, warnings
}
