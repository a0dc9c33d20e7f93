package learned

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"waldo/internal/codegen"
)

func learn(t *testing.T, s *Shapes, text string) []string {
	t.Helper()
	all, err := Results(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return s.Learn("get", all)
}

// TestLearn: each later result that does not fit is a drift, and a new version.
func TestLearn(t *testing.T) {
	var s Shapes
	for _, r := range []struct {
		result, schema string
		drift          []string
		version        int
	}{
		{`{"id":1,"name":"Ada","tags":["x"]} {"id":2,"name":"Bo","tags":[]}`, `{"type":["object"],"properties":{` +
			`"id":{"type":["integer"]},"name":{"type":["string"]},"tags":{"type":["array"],"items":{"type":["string"]}}},` +
			`"required":["id","name","tags"]}`, nil, 1},
		{`{"id":3,"name":"Cy","tags":[]}`, ``, nil, 1},
		{`{"id":3.5,"name":null,"more":true}`, `{"type":["object"],"properties":{"id":{"type":["number"]},` +
			`"more":{"type":["boolean"]},"name":{"type":["null","string"]},` +
			`"tags":{"type":["array"],"items":{"type":["string"]}}},"required":["id","name"]}`,
			[]string{"result.id was integer and is number", "result.more is new", "result.name was string and is null or string",
				"result.tags is not always there"}, 2},
		{`{"id":1,"name":"x","tags":[{"a":1}]}`, ``, []string{"result.tags[] was string and is object or string",
			"result.tags[].a is new"}, 3},
		{`[1]`, ``, []string{"result was object and is array or object", "result[] was not seen before"}, 4},
	} {
		if got := learn(t, &s, r.result); !slices.Equal(got, r.drift) || s.Tools["get"].Version != r.version {
			t.Errorf("%s: version %d, %q", r.result, s.Tools["get"].Version, got)
		}
		if got := string(s.Schema("get").Raw()); r.schema != "" && got != r.schema {
			t.Errorf("%s: %s", r.result, got)
		}
	}
	if s.Tools["get"].Results != 6 {
		t.Errorf("%d results", s.Tools["get"].Results)
	}
}

// TestValuesAreNotStored: no value of a result is in the file, and no name that is data.
func TestValuesAreNotStored(t *testing.T) {
	var s Shapes
	learn(t, &s, `{"who":"ada@example.com","n":4111111111111111,"by":{"ada@example.com":{"x":1},"bo@example.com":{"x":2}},`+
		`"days":{"2026-11-23":1},"ids":{"12":true},"users":{"alice":{"id":1},"bob":{"id":null}}}`)
	b, err := s.Text()
	if err != nil || strings.ContainsAny(string(b), "@") || strings.Contains(string(b), "4111") ||
		strings.Contains(string(b), "2026") || strings.Contains(string(b), `"12"`) || strings.Contains(string(b), "bob") {
		t.Errorf("%v %s", err, b)
	}
	again, err := Read(b)
	if err != nil {
		t.Fatal(err)
	}
	if c, _ := again.Text(); !bytes.Equal(b, c) {
		t.Error("a file that was read differs")
	}
}

// TestResults: the output of waldo call is taken apart as code in a sandbox sees it.
func TestResults(t *testing.T) {
	head := `"call_id":"c_1","decision_id":"d_1","content":[{"type":"text","text":`
	for text, want := range map[string]string{
		`{"status":"ok",` + head + `"x"}],"structured":{"a":1}}`: `{"a":1}`,
		`{"status":"ok",` + head + `"{\"a\":2}"}]}`:              `{"a":2}`,
		`{"status":"ok",` + head + `"plain"}]}`:                  `"plain"`,
		`{"status":"denied",` + head + `"no"}]}`:                 ``,
		`{"status":"ok","is_error":true,` + head + `"no"}]}`:     ``,
		`{"content":1}`: `{"content":1}`,
		"{\"status\":\"ok\"," + head + "\"x\"}]}\n{\"status\":\"ok\"}\n": `"x" {"status":"ok"}`,
	} {
		all, err := Results(strings.NewReader(text))
		var got []string
		for _, v := range all {
			got = append(got, string(v.Raw()))
		}
		if err != nil || strings.Join(got, " ") != want {
			t.Errorf("%s: %q %v", text, got, err)
		}
	}
	for _, text := range []string{`{"a":1`, `{"a":1,"a":2}`, `nope`} {
		if _, err := Results(strings.NewReader(text)); err == nil {
			t.Errorf("%s was taken", text)
		}
	}
}

func TestReadRefuses(t *testing.T) {
	for _, text := range []string{``, `[]`, `{}`, `{"format":2}`, `{"format":1,"tools":{"a":null}}`,
		`{"format":1,"tools":{"a":{"version":0,"schema":{}}}}`, `{"format":1,"more":1}`,
		`{"format":1,"tools":{"a":{"version":1,"results":1,"schema":{"$ref":"file:///etc/passwd"}}}}`} {
		if _, err := Read([]byte(text)); err == nil {
			t.Errorf("%s was taken", text)
		}
	}
}

// FuzzLearn: a learned result is not reported as drift when it comes again, in any order.
func FuzzLearn(f *testing.F) {
	f.Add(`{"a":[1,{"b":null}],"c":{"x y":2}}`, `{"a":{},"c":[1.5]}`)
	f.Fuzz(func(t *testing.T, a, b string) {
		x, err1 := Results(strings.NewReader(a))
		y, err2 := Results(strings.NewReader(b))
		if err1 != nil || err2 != nil || len(x) == 0 || len(y) == 0 {
			return
		}
		var s, o Shapes
		s.Learn("t", x)
		s.Learn("t", y)
		if drift := slices.Concat(s.Learn("t", x), s.Learn("t", y)); len(drift) > 0 {
			t.Errorf("again: %q", drift)
		}
		o.Learn("t", y)
		o.Learn("t", x)
		if p, q := string(s.Schema("t").Raw()), string(o.Schema("t").Raw()); p != q {
			t.Errorf("%s\n%s", p, q)
		}
	})
}

// TestGenerated: a learned shape becomes the type of a result in both languages.
func TestGenerated(t *testing.T) {
	var s Shapes
	learn(t, &s, `{"id":1,"by":{"x y":{"n":1}},"rows":[{"a":1},{"a":null,"b":"x"}]}`)
	files, err := codegen.Generate(codegen.Server{Name: "s"}, []codegen.Tool{{Name: "get", Output: s.Schema("get")}},
		codegen.Languages)
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string][]string{
		"servers/s/get.py": {`"by": Dict[str, "ResultByValue"]`, `"rows": List["ResultRowsItem"]`, `"a": Union[int, None]`},
		"servers/s/get.ts": {`"by": Record<string, ResultByValue>;`, `"b"?: string;`, `"a": number | null;`},
	} {
		i := slices.IndexFunc(files, func(f codegen.File) bool { return f.Path == path })
		for _, w := range want {
			if !strings.Contains(string(files[i].Text), w) {
				t.Errorf("%s lacks %s:\n%s", path, w, files[i].Text)
			}
		}
	}
}
