package threatmodel

import (
	"maps"
	"slices"
	"strings"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/v1"

	"waldo/internal/model/contract"
	"waldo/internal/protocol/strictjson"
)

// restOfContract has digests of the settings of a contract that no other fact has.
func restOfContract(c contract.Contract) string {
	c.Pattern, c.Mode, c.Danger, c.Rules, c.Examples, c.Keys = "", 0, 0, nil, nil, nil
	c.Approval.When, c.Approval.Condition = 0, nil
	c.Network.Allow, c.Network.Internal = nil, false
	c.Secrets, c.Reveal, c.Input, c.Root, c.Mounts, c.Database, c.Denied = nil, nil, "", "", nil, "", false
	return digest(c)
}

// restOfServer has digests of the settings of a server that no other fact has.
func restOfServer(s contract.Server) string {
	s.Name, s.Placement, s.URL, s.Input = "", "", "", ""
	s.Network.Allow, s.Network.Internal = nil, false
	s.Secrets, s.Mounts = nil, nil
	return digest(s)
}

// restOfAll has digests of a configuration without its contracts and servers.
func restOfAll(cfg contract.Config) string {
	if cfg.Log.Policy != "" {
		cfg.Log.Policy = beside(contract.Position{File: cfg.File}, cfg.Log.Policy)
	}
	cfg.Contracts, cfg.Servers, cfg.File, cfg.Digest, cfg.Warnings = nil, nil, "", "", nil
	return digest(cfg)
}

// digest has one for each setting, without the places in the file and without absent settings, so that a setting that
// waldo learns later changes no digest of a configuration without it.
func digest(v any) string {
	b, err := jsonv2.Marshal(v, json.DefaultOptionsV1(), jsonv2.OmitZeroStructFields(true))
	var tree map[string]any
	if err != nil || json.Unmarshal(b, &tree) != nil {
		return "unreadable"
	}
	placeless(tree)
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(tree)) {
		if b, err = json.Marshal(tree[name]); err != nil {
			return "unreadable"
		}
		parts = append(parts, strings.ToLower(name)+"="+strings.TrimPrefix(strictjson.Digest(b), "sha256:")[:16])
	}
	return strings.Join(parts, " ")
}

// differing names the settings whose digests differ, or that one of two lists has alone.
func differing(a, b string) string {
	var names []string
	for _, pair := range [][2]string{{a, b}, {b, a}} {
		for _, one := range strings.Fields(pair[0]) {
			if !slices.Contains(strings.Fields(pair[1]), one) {
				name, _, _ := strings.Cut(one, "=")
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return strings.Join(slices.Compact(names), ", ")
}

// placeless removes positions: objects of file, line and column alone.
func placeless(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k, member := range v {
			if isPlace(member) {
				delete(v, k)
			} else {
				v[k] = placeless(member)
			}
		}
	case []any:
		for i := range v {
			if v[i] = placeless(v[i]); isPlace(v[i]) {
				v[i] = nil
			}
		}
	}
	return v
}

// isPlace reports whether a value is a position.
func isPlace(v any) bool {
	members, is := v.(map[string]any)
	for k := range members {
		is = is && (k == "file" || k == "line" || k == "column")
	}
	return is && len(members) > 0
}
