package terminal

import (
	"encoding/json"
	"io"

	"waldo/internal/model/display"
)

func JSON(w io.Writer, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	_, err = w.Write(append(display.JSON(b), '\n'))
	return err
}
