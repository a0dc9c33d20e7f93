package threatmodel

import (
	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/v1"

	"waldo/internal/model/contract"
	"waldo/internal/protocol/strictjson"
)

// restOfContract is the digest of the parts of a contract that no other fact has.
func restOfContract(c contract.Contract) string {
	c.Pattern, c.Mode, c.Danger, c.Rules, c.Examples, c.Keys = "", 0, 0, nil, nil, nil
	c.Approval.When, c.Approval.Condition = 0, nil
	c.Network.Allow, c.Network.Internal = nil, false
	c.Secrets, c.Reveal, c.Input, c.Root, c.Mounts, c.Database, c.Denied = nil, nil, "", "", nil, "", false
	return digest(c)
}

// restOfServer is the digest of the parts of a server that no other fact has.
func restOfServer(s contract.Server) string {
	s.Name, s.Placement, s.URL, s.Input = "", "", "", ""
	s.Network.Allow, s.Network.Internal = nil, false
	s.Secrets, s.Mounts = nil, nil
	return digest(s)
}

// restOfAll is the digest of a configuration without its contracts and servers.
func restOfAll(cfg contract.Config) string {
	if cfg.Log.Policy != "" {
		cfg.Log.Policy = beside(contract.Position{File: cfg.File}, cfg.Log.Policy)
	}
	cfg.Contracts, cfg.Servers, cfg.File, cfg.Digest = nil, nil, "", ""
	return digest(cfg)
}

// digest is that of a value without the places in the file and without absent settings, so that a setting that waldo
// learns later changes no digest of a configuration without it.
func digest(v any) string {
	b, err := jsonv2.Marshal(v, json.DefaultOptionsV1(), jsonv2.OmitZeroStructFields(true))
	if err != nil {
		return "unreadable"
	}
	var tree any
	if err := json.Unmarshal(b, &tree); err != nil {
		return "unreadable"
	}
	if b, err = json.Marshal(placeless(tree)); err != nil {
		return "unreadable"
	}
	return strictjson.Digest(b)[:len("sha256:")+16]
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
