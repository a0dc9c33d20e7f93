package evidence

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"waldo/internal/core/audit"
)

// schema has the attributes of classes and objects by their number or name, as testdata/ocsf-1.8.0.txt lists them.
type schema map[string]map[string]attribute

type attribute struct {
	kind     string // integer_t, or the name of an object
	list     bool
	required bool
	profile  string
	values   []string // empty: any
}

// oneOf are sets of attributes of which an object needs one each, by the object's name.
type oneOf map[string][][]string

func readSchema(t *testing.T) (schema, oneOf) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", "ocsf-1.8.0.txt"))
	if err != nil {
		t.Fatal(err)
	}
	all, some, name := schema{}, oneOf{}, ""
	for text := range strings.Lines(string(b)) {
		w := strings.Fields(text)
		switch {
		case w[0] == "#":
		case w[0] == "class" || w[0] == "object":
			name = w[1]
			all[name] = map[string]attribute{}
			if w[0] == "class" {
				maps.Copy(all[name], all["0"])
			}
		case w[0] == "one" && w[1] == "of":
			some[name] = append(some[name], strings.Split(w[2], ","))
		default:
			need, profile, _ := strings.Cut(w[2], "@")
			a := attribute{kind: strings.TrimSuffix(w[1], "[]"), list: strings.HasSuffix(w[1], "[]"),
				required: need == "required" && profile == "", profile: profile}
			if len(w) > 3 {
				a.values = strings.Split(w[3], ",")
			}
			all[name][w[0]] = a
		}
	}
	return all, some
}

// faults returns what is wrong with an event.
func (s schema) faults(some oneOf, e object) (out []string) {
	class := fmt.Sprint(e["class_uid"])
	if s[class] == nil {
		return []string{"unknown class " + class}
	}
	uid, _ := e["class_uid"].(float64)
	activity, _ := e["activity_id"].(float64)
	if e["type_uid"] != uid*100+activity || e["category_uid"] != math.Trunc(uid/1000) {
		out = append(out, "type_uid or category_uid does not fit")
	}
	meta, _ := e["metadata"].(object)
	if meta["version"] != "1.8.0" {
		out = append(out, "metadata.version")
	}
	profiles := fmt.Sprint(meta["profiles"])
	return append(out, s.object(some, class, "", e, profiles)...)
}

func (s schema) object(some oneOf, kind, at string, o object, profiles string) (out []string) {
	known := s[kind]
	if known == nil {
		return []string{at + ": the object " + kind + " is not in the table"}
	}
	for name, a := range known {
		if _, there := o[name]; a.required && !there {
			out = append(out, at+name+" is missing")
		}
	}
	for _, need := range some[kind] {
		if !slices.ContainsFunc(need, func(n string) bool { _, ok := o[n]; return ok }) {
			out = append(out, at+": none of "+strings.Join(need, " "))
		}
	}
	for name, v := range o {
		a, ok := known[name]
		switch {
		case !ok:
			out = append(out, at+name+" is unknown")
		case a.profile != "" && !strings.Contains(profiles, a.profile):
			out = append(out, at+name+" needs the profile "+a.profile)
		case a.list:
			for _, one := range v.([]any) {
				out = append(out, s.value(some, a, at+name, one, profiles)...)
			}
		case name == "class_uid" || name == "category_uid": // faults checks both
		default:
			out = append(out, s.value(some, a, at+name, v, profiles)...)
		}
	}
	return out
}

func (s schema) value(some oneOf, a attribute, at string, v any, profiles string) []string {
	ok := true
	switch a.kind {
	case "integer_t", "long_t", "timestamp_t", "port_t":
		var n float64
		n, ok = v.(float64)
		ok = ok && n == math.Trunc(n) && (len(a.values) == 0 || slices.Contains(a.values, strconv.Itoa(int(n))))
	case "boolean_t":
		_, ok = v.(bool)
	case "object": // any members
		_, ok = v.(object)
	default:
		if strings.HasSuffix(a.kind, "_t") {
			var text string
			text, ok = v.(string)
			ok = ok && text != "" && (len(a.values) == 0 || slices.Contains(a.values, text))
			break
		}
		inner, is := v.(object)
		if is {
			return s.object(some, a.kind, at+".", inner, profiles)
		}
		ok = false
	}
	if !ok {
		return []string{fmt.Sprintf("%s: %v is no %s", at, v, a.kind)}
	}
	return nil
}

// TestOCSF: each kind of record is an event of its class that the schema of OCSF 1.8.0 allows.
func TestOCSF(t *testing.T) {
	g := newGround(t, 1)
	g.story()
	var out bytes.Buffer
	find := func() (audit.Report, error) {
		return audit.Report{Findings: []audit.Finding{{Problem: true, Code: "chain.broken", Seq: 3, Text: "a line"},
			{Unchecked: true, Code: "witness.missing", Text: "nothing is known"}}}, nil
	}
	x := &ocsf{w: &out, version: "1.2.3", calls: calls{}, find: find, now: time.Now}
	g.export(x)
	s, some := readSchema(t)
	got := map[string]int{}
	uids := map[any]bool{}
	var last object
	for in := bufio.NewScanner(&out); in.Scan(); {
		var e object
		if err := json.Unmarshal(in.Bytes(), &e); err != nil {
			t.Fatal(err)
		}
		if faults := s.faults(some, e); len(faults) > 0 {
			t.Errorf("%s\n%s", in.Text(), strings.Join(faults, "\n"))
		}
		meta := e["metadata"].(object)
		if uids[meta["uid"]] {
			t.Errorf("two events have the uid %v", meta["uid"])
		}
		uids[meta["uid"]] = true
		got[fmt.Sprintf("%v %v: %v %v %v", meta["event_code"], e["type_uid"], e["action"], e["status"], e["severity_id"])]++
		if e["class_uid"] == 6003.0 && meta["event_code"] == "decision" {
			last = e
		}
	}
	want := map[string]int{
		"genesis 99: <nil> <nil> 1": 1, "test 99: <nil> <nil> 1": 1,
		"decision 600302: Allowed <nil> 1": 1, "decision 600399: Denied Failure 2": 1, "decision 600399: ask <nil> 1": 2,
		"outcome 600302: <nil> Success 1": 1, "outcome 600399: <nil> Failure 1": 1,
		"outcome 100702: <nil> Failure 1": 1, "outcome 600399: <nil> waiting 1": 1,
		"outcome 400101: Allowed <nil> 1": 1, "outcome 400105: Denied <nil> 2": 1, "egress 400104: Allowed <nil> 1": 1,
		"outcome 400206: Allowed <nil> 1": 1, "outcome 400202: Denied Failure 2": 1, "outcome 400299: Allowed Failure 1": 1,
		"verdict 600399: Allowed <nil> 1": 1, "answer 600399: Denied Failure 1": 1, "answer 200401: <nil> <nil> 3": 1,
		"approver 300406: <nil> <nil> 1": 1, "approver 300407: <nil> Failure 1": 1,
		"trust 300408: <nil> <nil> 1": 1, "change 300499: <nil> <nil> 1": 1,
		"verify 200401: <nil> <nil> 4": 1, "verify 200401: <nil> <nil> 2": 1,
	}
	if !maps.Equal(got, want) {
		for k := range maps.Keys(want) {
			if got[k] != want[k] {
				t.Errorf("%s: %d, want %d", k, got[k], want[k])
			}
		}
		t.Errorf("got %v", got)
	}
	for name, change := range map[string]func(e object){
		"api is missing":                       func(e object) { delete(e, "api") },
		"severity_id: 7 is no integer_t":       func(e object) { e["severity_id"] = 7.0 },
		"verdict is unknown":                   func(e object) { e["verdict"] = "no" },
		"actor.: none of process user":         func(e object) { e["actor"] = object{} },
		"time: soon is no timestamp_t":         func(e object) { e["time"] = "soon" },
		"type_uid or category_uid":             func(e object) { e["type_uid"] = 1.0 },
		"action needs the profile security_co": func(e object) { e["metadata"].(object)["profiles"] = []any{} },
	} { // the control of the schema
		e := maps.Clone(last)
		e["metadata"] = maps.Clone(last["metadata"].(object))
		change(e)
		if faults := strings.Join(s.faults(some, e), "\n"); !strings.Contains(faults, name) {
			t.Errorf("control: %s: %q", name, faults)
		}
	}
}
