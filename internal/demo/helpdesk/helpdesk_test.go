package helpdesk

import (
	"context"
	"encoding/json"
	"io"
	"reflect"
	"regexp"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"waldo/internal/protocol/jsonschema"
	"waldo/internal/protocol/strictjson"
)

// connect joins the official SDK's client to the server.
func connect(t *testing.T) *mcp.ClientSession {
	t.Helper()
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- Serve(inR, outW) }()
	s, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(context.Background(),
		&mcp.IOTransport{Reader: outR, Writer: inW}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = s.Close()
		_ = inW.Close()
		if err := <-ended; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return s
}

func TestToolsKeepTheirSchemas(t *testing.T) {
	s := connect(t)
	list, err := s.ListTools(context.Background(), nil)
	if err != nil || len(list.Tools) != len(tools) {
		t.Fatalf("%d tools, want %d: %v", len(list.Tools), len(tools), err)
	}
	for _, row := range []struct{ tool, args, want, why string }{
		{"list_customers", `{"offset":4990,"limit":500}`, `10 of 5000 customers`, "the last page is short"},
		{"list_customers", `{"limit":100000}`, `500 of 5000 customers`, "no page is longer than 500"},
		{"list_customers", `{"offset":-5,"limit":-1}`, `0 of 5000 customers`, "negative numbers are no way out of the list"},
		{"get_customer", `{"id":1}`, ``, "one customer"},
		{"search_customers", `{"query":"ada","limit":3}`, `3 of `, "capitals do not matter"},
		{"list_tickets", `{"customer_id":1}`, ``, "the tickets of one customer"},
		{"create_ticket", `{"customer_id":1,"title":"x","priority":"high"}`, `is open`, "a new ticket"},
		{"close_ticket", `{"id":1}`, `ticket 1 is closed`, "an old ticket"},
		{"delete_customer", `{"id":2}`, `customer 2 and `, "a customer goes"},
	} {
		t.Run(row.tool+": "+row.why, func(t *testing.T) {
			r, err := s.CallTool(context.Background(), &mcp.CallToolParams{Name: row.tool, Arguments: json.RawMessage(row.args)})
			if err != nil || r.IsError {
				t.Fatalf("%v %+v", err, r)
			}
			text := r.Content[0].(*mcp.TextContent).Text
			if !regexp.MustCompile(regexp.QuoteMeta(row.want)).MatchString(text) {
				t.Errorf("said %.100q, want %q", text, row.want)
			}
			for _, def := range tools {
				if def.name == row.tool {
					v, err := strictjson.Parse([]byte(def.output))
					if err != nil {
						t.Fatal(err)
					}
					compiled, err := jsonschema.Compile(v)
					if err != nil {
						t.Fatal(err)
					}
					if f := compiled.Check(r.StructuredContent); len(f) > 0 {
						t.Errorf("its own output schema: %v", f)
					}
				}
			}
		})
	}
	r, err := s.CallTool(context.Background(), &mcp.CallToolParams{
		Name: "get_customer", Arguments: map[string]any{"id": 2},
	})
	if err != nil || !r.IsError {
		t.Errorf("a deleted customer: %v %+v", err, r)
	}
	if _, err := s.CallTool(context.Background(), &mcp.CallToolParams{Name: "nope"}); err == nil {
		t.Error("a tool that is not there")
	}
}

func TestTheDataIsInventedAndAlwaysTheSame(t *testing.T) {
	one, tickets := desk()
	two, _ := desk()
	if !reflect.DeepEqual(one, two) || len(one) != Customers || len(tickets) < 1000 {
		t.Fatalf("%d customers, %d tickets", len(one), len(tickets))
	}
	seen := map[string]bool{}
	for _, c := range one {
		for _, check := range []struct{ value, pattern string }{
			{c.Email, `^[a-z]+\.[a-z]+\d+@customer\.example$`},
			{c.Phone, `^\+1-\d{3}-555-01\d\d$`},
			{c.SSN, `^9\d\d-\d\d-\d{4}$`},
			{c.Card, `^400000000\d{7}$`},
		} {
			if !regexp.MustCompile(check.pattern).MatchString(check.value) {
				t.Fatalf("customer %d: %q is not %s", c.ID, check.value, check.pattern)
			}
		}
		if !luhn(c.Card) {
			t.Fatalf("customer %d: %s has no Luhn digit", c.ID, c.Card)
		}
		if seen[c.Email] {
			t.Fatalf("customer %d: %s again", c.ID, c.Email)
		}
		seen[c.Email] = true
	}
}

// luhn is ISO/IEC 7812-1 Annex B, written from the other end than card does.
func luhn(s string) bool {
	sum := 0
	for i := range s {
		n := int(s[len(s)-1-i] - '0')
		if i%2 == 1 {
			n = n*2/10 + n*2%10
		}
		sum += n
	}
	return sum%10 == 0
}
