package facts

import (
	"bytes"
	"encoding/json"
	"math/rand"
	"reflect"
	"slices"
	"testing"
	"testing/quick"
)

// AppendJSON writes the same bytes as encoding/json for any facts: no member is forgotten.
func TestAppendJSON(t *testing.T) {
	random := rand.New(rand.NewSource(1))
	for n := range 200 {
		v, ok := quick.Value(reflect.TypeFor[Facts](), random)
		if !ok {
			t.Fatal("no facts")
		}
		f := v.Interface().(Facts)
		switch n {
		case 0:
			f = New()
		case 1:
			f = Facts{}
		}
		f.Usage.WallMS, f.Usage.CPUMS = float64(random.Intn(1e9))/1000, float64(n)
		want, err := json.Marshal(f)
		if err != nil {
			t.Fatal(err)
		}
		var a, b any
		got := f.AppendJSON(nil)
		if err := json.Unmarshal(got, &a); err != nil {
			t.Fatalf("%v: %s", err, got)
		}
		if err := json.Unmarshal(want, &b); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(a, b) {
			t.Fatalf("got  %s\nwant %s", got, want)
		}
	}
}

// Brief omits only zero members and facts about the machine: a reader gets the same facts back.
func TestBrief(t *testing.T) {
	random := rand.New(rand.NewSource(1))
	for n := range 200 {
		v, _ := quick.Value(reflect.TypeFor[Facts](), random)
		f := v.Interface().(Facts)
		f.Usage.WallMS, f.Usage.CPUMS = float64(random.Intn(1e9))/1000, float64(n)
		zero := 0
		switch n {
		case 0:
			f = New()
		case 1:
			f = Facts{}
		case 2:
			f = New()
			f.ExitCode = &zero
		}
		f.Files.Removed, f.Limit, f.Signal = nil, some(f.Limit), some(f.Signal)
		b, err := json.Marshal(Brief(f))
		if err != nil {
			t.Fatal(err)
		}
		var got Facts
		if err := json.Unmarshal(b, &got); err != nil {
			t.Fatalf("%v: %s", err, b)
		}
		if a, b := got.AppendJSON(nil), f.AppendJSON(nil); string(whole(t, a)) != string(whole(t, b)) {
			t.Fatalf("got  %s\nwant %s", a, b)
		}
		var all any
		if err := json.Unmarshal(b, &all); err != nil {
			t.Fatal(err)
		}
		m := all.(map[string]any)
		delete(m, "exit_code") // zero says that a process ran
		if where := empty("", m); where != "" {
			t.Fatalf("%s is zero in %s", where, b)
		}
	}
}

// some is nil for an empty word, which nothing writes.
func some[T ~string](s *T) *T {
	if s != nil && *s == "" {
		return nil
	}
	return s
}

// whole makes no difference between lists that are null and those that are empty.
func whole(t *testing.T, b []byte) []byte {
	t.Helper()
	return bytes.ReplaceAll(b, []byte(":null"), []byte(":[]"))
}

// empty returns where a member is zero.
func empty(at string, v any) string {
	switch v := v.(type) {
	case map[string]any:
		for k, x := range v {
			if where := empty(at+"."+k, x); where != "" {
				return where
			}
		}
		if len(v) == 0 && at != "" {
			return at
		}
	case []any:
		if len(v) == 0 {
			return at
		}
	case nil, bool, float64, string:
		if v == nil || v == false || v == 0.0 || v == "" {
			return at
		}
	}
	return ""
}

// TestTried: what a run was refused without any egress counts as tried, and once.
func TestTried(t *testing.T) {
	n := Network{Denied: []string{"a.example.com", "b.example.com:443", "192.0.2.1:80", "[2001:db8::1]:53"},
		Attempts: []Attempt{{Host: "b.example.com", Port: 443, Why: "host", Times: 2}}}
	want := []Attempt{n.Attempts[0], {Host: "a.example.com", Times: 1}, {Host: "192.0.2.1", Port: 80, Times: 1},
		{Host: "2001:db8::1", Port: 53, Times: 1}}
	if got := n.Tried(); !slices.Equal(got, want) {
		t.Errorf("%+v", got)
	}
}
