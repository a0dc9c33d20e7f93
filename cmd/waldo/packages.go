package main

import (
	"io"
	"maps"
	"slices"
	"strings"

	"waldo/internal/executor/registry"
	"waldo/internal/model/contract"
	"waldo/internal/model/display"
)

// tellPackages says which registries the contracts mean.
func tellPackages(w io.Writer, cfg *contract.Config) {
	for _, c := range cfg.Contracts {
		for _, name := range slices.Sorted(maps.Keys(c.Network.Packages)) {
			r := c.Network.Packages[name]
			address, files, set := registry.Of(name, r)
			if contract.RegistryLine(address) == "" {
				address = "an address that is not plain https, so its runs are denied" // it can hold a password
			}
			if name == "debian" {
				address += ", " + registry.Suite(r)
			}
			if len(files) > 0 {
				address += ", files from " + strings.Join(files, ", ")
			}
			pins := "every package"
			if r.Lock != "" {
				pins = "the versions of " + r.Lock
			}
			display.Fprintf(w, "%s reads %s packages of %s (%s): %s\n", c.Pattern, name, address, set, pins)
		}
	}
}
