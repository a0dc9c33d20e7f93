package answer

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"waldo/internal/protocol/strictjson"
)

// Bounds of a schema.
const (
	MaxTables  = 200
	MaxColumns = 4000
)

// Schema is the part of a database that a role may read.
type Schema struct {
	Tables []Relation `json:"tables"`
	Cut    bool       `json:"cut,omitempty"` // more tables are there
}

// Relation is one table or view.
type Relation struct {
	Name    string   `json:"name"` // as a query writes it
	Kind    string   `json:"kind"` // table, view, materialized view, foreign table
	Comment string   `json:"comment,omitempty"`
	Columns []Field  `json:"columns"`
	Keys    []string `json:"keys,omitempty"` // PRIMARY KEY (id), FOREIGN KEY (user_id) REFERENCES users(id)
}

// Field is one column of a Relation.
type Field struct {
	Name     string `json:"name"`
	Type     string `json:"type"`
	Required bool   `json:"required,omitempty"` // NOT NULL
	Comment  string `json:"comment,omitempty"`
}

// Structured returns the schema as one JSON object.
func (s *Schema) Structured() (strictjson.Value, error) {
	b, err := json.Marshal(s)
	if err != nil {
		return strictjson.Value{}, err
	}
	return strictjson.Parse(b)
}

// Show returns the schema as text: each table, its columns, its keys. Its error is the context's.
func (s *Schema) Show(ctx context.Context) (string, error) {
	var b strings.Builder
	for _, t := range s.Tables {
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
		fmt.Fprintf(&b, "%s (%s)%s\n", plain(t.Name), t.Kind, comment(t.Comment))
		for _, c := range t.Columns {
			required := ""
			if c.Required {
				required = " not null"
			}
			fmt.Fprintf(&b, "  %s %s%s%s\n", plain(c.Name), plain(c.Type), required, comment(c.Comment))
		}
		for _, k := range t.Keys {
			fmt.Fprintf(&b, "  %s\n", plain(k))
		}
	}
	switch {
	case len(s.Tables) == 0:
		b.WriteString("(no table that this role may read)")
	case s.Cut:
		fmt.Fprintf(&b, "(the first %d tables; there are more: name a table)", len(s.Tables))
	}
	return strings.TrimSuffix(b.String(), "\n"), nil
}

func comment(s string) string {
	if s == "" {
		return ""
	}
	return " -- " + plain(s)
}
