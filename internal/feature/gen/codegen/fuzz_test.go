package codegen

import (
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"waldo/internal/protocol/strictjson"
)

// literals matches one string literal. A generated line with each literal replaced by S must match a form of its
// language: no text of a server stands outside of a literal.
var literals = regexp.MustCompile(`"(?:[^"\\]|\\["\\n]|\\x[0-9a-f]{2}|\\u[0-9a-f]{4}|\\U000[0-9a-f]{5}` +
	`|\\u\{[0-9a-f]{5,6}\})*"`)

const (
	pyType = `(?:S|Any|None|str|int|float|bool|List|Dict|Union|Literal|True|False|-?\d+|[\[\], ])+`
	tsType = `(?:S|unknown|null|string|number|boolean|Array|Record|(?:Params|Result)\w*|true|false|-?\d+|\.\.\.` +
		`|[\[\]<>()|?, ])+`
)

var forms = map[Language]*regexp.Regexp{
	Python: regexp.MustCompile(`^(?:|\(|\)|    S|    pass|    S: ` + pyType + `,|Result = ` + pyType +
		`|TOOL = S|_(?:needed|optional)_(?:Params|Result)\w* = TypedDict\(S, \{|\}\)|\}, total=False\)` +
		`|class (?:Params|Result)\w*\((?:Dict\[str, Any\]|_\w+(?:, _\w+)?)\):` +
		`|from typing import [\w, ]+|from \._client import [\w, ]+|(?:async )?def call[\w(): =\[\],>-]+:` +
		`|    (?:return |result: Result = )(?:await )?call_tool[\w(), ]+|    return result` +
		`|call\.__doc__ = call_sync\.__doc__ = __doc__)$`),
	TypeScript: regexp.MustCompile(`^(?:|  S,|\}|  S\??: ` + tsType + `;|export type Result = ` + tsType + `;` +
		`|export const TOOL = S;|export const DESCRIPTION = \[|\]\.join\(S\);|export interface (?:Params|Result)\w* \{` +
		`|  \[key: string\]: unknown;|import \{ SERVER_URL, callTool \} from S;` +
		`|export async function call\(baseUrl: string = SERVER_URL, params\?: Params\): Promise<Result> \{` +
		`|  return \(await callTool\(TOOL, baseUrl, params\)\) as Result;)$`),
}

func wellFormed(t *testing.T, l Language, text string) {
	t.Helper()
	for _, r := range text {
		if r == utf8.RuneError || r != '\n' && !strconv.IsPrint(r) {
			t.Fatalf("%s: the character %U", l, r)
		}
	}
	for _, line := range strings.Split(text, "\n") {
		if outside := literals.ReplaceAllString(line, "S"); !forms[l].MatchString(outside) {
			t.Fatalf("%s: the line %s\nof %s", l, clip(outside, 300), clip(line, 300))
		}
	}
}

// FuzzGenerate: for any name, description and schema each line has one of the known forms, and no file is large.
func FuzzGenerate(f *testing.F) {
	for _, schema := range []string{`{}`, `true`,
		`{"type":"object","properties":{"a\"b":{"type":["string","null"],"description":"x\ny"}},"required":["a"]}`,
		`{"properties":{"x":{"enum":["\"\"\"","*/","\u2028",1,1.5,null]}}}`, `{"$ref":"#"}`,
		`{"properties":{"t":{"type":"array","prefixItems":[{},{"const":"\\"}],"items":false}},` +
			`"$defs":{"a":{"$ref":"#/$defs/a"}}}`} {
		f.Add("t", "d", schema)
	}
	f.Add("\"\n", "\"\"\"\nimport os", `{"properties":{"\"": {"$ref":"#/properties/\""}}}`)
	f.Add("\x00\r\x1b\u202e", "\u2028\x85\\", `{"properties":{"\u0000\u202e\\":{"const":"\r\u2028\""}}}`)
	f.Fuzz(func(t *testing.T, name, description, schema string) {
		v, err := strictjson.Parse([]byte(schema))
		if err != nil {
			t.Skip()
		}
		tool := Tool{Name: name, Title: description, Description: description, Input: v, Output: v}
		wellFormed(t, Python, pythonModule(tool))
		wellFormed(t, TypeScript, typescriptModule(tool))
		module := moduleNames([]string{name})[0]
		if !regexp.MustCompile(`^[A-Za-z]\w*$`).MatchString(module) || reserved[strings.ToLower(module)] {
			t.Fatalf("the module %q", module)
		}
	})
}

// TestForms: the forms refuse what a hole would give.
func TestForms(t *testing.T) {
	tool := Tool{
		Name: "t", Description: "x", Output: parse(t, []byte(`{"type":"object","properties":{"a":{"enum":["x",-1,true]}}}`)),
	}
	wellFormed(t, Python, pythonModule(tool))
	wellFormed(t, TypeScript, typescriptModule(tool))
	for _, line := range []string{
		`import os`, `    "a" "b"; evil()`, `    "a\q"`, `    "a`, `  "a": evil,`, `/* x`, "`x`",
	} {
		outside := literals.ReplaceAllString(line, "S")
		if forms[Python].MatchString(outside) || forms[TypeScript].MatchString(outside) {
			t.Errorf("control: %s has a known form", line)
		}
	}
}
