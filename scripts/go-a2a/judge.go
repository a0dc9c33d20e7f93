// Command judge reads lines of a type of A2A and a JSON value from standard input, and prints what is wrong with each. It
// takes nothing that the published .proto of A2A 1.0 does not have.
package main

import (
	"bufio"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/a2aproject/a2a-go/v2/a2apb/v1"
	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		name, text, _ := strings.Cut(lines.Text(), "\t")
		fmt.Println(name + ": " + judged(name, text))
	}
}

// judged returns "ok", or what is wrong.
func judged(name, text string) string {
	of, err := protoregistry.GlobalTypes.FindMessageByName(a2apb.File_a2av1_proto.Package().Append(protoreflect.Name(name)))
	if err != nil {
		return err.Error()
	}
	m := of.New()
	if err := (protojson.UnmarshalOptions{}).Unmarshal([]byte(text), m.Interface()); err != nil {
		return err.Error()
	}
	if field := missing(m); field != "" {
		return field + " is required"
	}
	return "ok"
}

// missing returns a field that the .proto requires and m does not have; empty: none. An empty next_page_token says that
// there is no next page.
func missing(m protoreflect.Message) (field string) {
	for i := range m.Descriptor().Fields().Len() {
		f := m.Descriptor().Fields().Get(i)
		behaviors, _ := proto.GetExtension(f.Options(), annotations.E_FieldBehavior).([]annotations.FieldBehavior)
		if slices.Contains(behaviors, annotations.FieldBehavior_REQUIRED) && !m.Has(f) && f.Name() != "next_page_token" {
			return string(f.FullName())
		}
	}
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.Kind() != protoreflect.MessageKind || f.IsMap():
		case f.IsList():
			for i := 0; i < v.List().Len() && field == ""; i++ {
				field = missing(v.List().Get(i).Message())
			}
		default:
			field = missing(v.Message())
		}
		return field == ""
	})
	return field
}
