package program

import (
	"errors"

	"waldo/internal/sandbox/engine/quickjs"
)

func (p *program) suspend() (bool, error) { return false, nil }

func (p *program) resume(*quickjs.Engine) error { return errors.New("not yet") }
