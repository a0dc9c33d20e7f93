package approval

import (
	"encoding/base64"
	"encoding/json"
	"strings"

	"waldo/internal/storage/safefile"
)

// What waldo found can hold values of tokens, which the database must not show. Such a question is sealed with a key
// in a file of the state directory. Other processes need the whole: a human reads it, and it is compared later.

// sealedBy begins the text of a sealed question. No JSON does.
const sealedBy = "sealed "

func (k *Service) questionKey() ([]byte, error) { return safefile.Key(k.Store.Path("questions.key")) }

// sealed returns a question as the database stores it.
func (k *Service) sealed(q Question) (string, error) {
	b, err := json.Marshal(q)
	if err != nil || len(q.Notes) == 0 {
		return string(b), err
	}
	key, err := k.questionKey()
	if err != nil {
		return "", err
	}
	b, err = safefile.Seal(key, b, q.ID)
	return sealedBy + base64.StdEncoding.EncodeToString(b), err
}

// unsealed reads a stored question with the id of its row.
func (k *Service) unsealed(text, approvalID string, q *Question) error {
	body, ok := strings.CutPrefix(text, sealedBy)
	if !ok {
		return json.Unmarshal([]byte(text), q)
	}
	b, err := base64.StdEncoding.DecodeString(body)
	if err != nil {
		return err
	}
	key, err := k.questionKey()
	if err == nil {
		b, err = safefile.Unseal(key, b, approvalID)
	}
	if err != nil {
		return err
	}
	return json.Unmarshal(b, q)
}
