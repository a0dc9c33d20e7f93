package checkdigit

import "testing"

// Each sound number stays sound, and no other last or first digit is.
func TestSound(t *testing.T) {
	for _, row := range []struct {
		sound func([]byte) bool
		good  string
		bad   []string
	}{
		{Luhn, "4111111111111111", []string{"4111111111111112", "4111111111111121", "0000000000000000"}},
		{IBAN, "GB82WEST12345698765432", []string{"GB82WEST12345698765433", "GB28WEST12345698765432"}},
		{Base58, "1A1zP1eP5QGefi2DMPTfTL5SLmv7DivfNa", []string{
			"1A1zP1eP5QGefi2DMPTfTL5SLmv7DivfNb", "1A1zP1eP5QGefi2DMPTfTL5SLmv7Divf0a",
		}},
	} {
		if !row.sound([]byte(row.good)) {
			t.Errorf("%s is sound", row.good)
		}
		for _, s := range row.bad {
			if row.sound([]byte(s)) {
				t.Errorf("%s is not sound", s)
			}
		}
	}
}
