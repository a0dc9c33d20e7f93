package terminal

import (
	"encoding/json"
	"io"
	"reflect"

	"waldo/internal/model/display"
)

func JSON(w io.Writer, v any) error {
	if r := reflect.ValueOf(v); r.Kind() == reflect.Slice && r.IsNil() {
		v = []struct{}{} // an empty list, not null
	}
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	_, err = w.Write(append(display.JSON(b), '\n'))
	return err
}
