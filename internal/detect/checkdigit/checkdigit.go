// Package checkdigit tells account numbers from other text by the check that they carry.
package checkdigit

import (
	"bytes"
	"crypto/sha256"
	"strings"
)

// Luhn reports whether the last of some digits is their check (ISO/IEC 7812-1). Equal digits have none.
func Luhn(n []byte) bool {
	sum := 0
	for i := range n {
		v := int(n[len(n)-1-i] - '0')
		if i%2 == 1 {
			if v *= 2; v > 9 {
				v -= 9
			}
		}
		sum += v
	}
	return sum%10 == 0 && bytes.Count(n, n[:1]) < len(n)
}

// IBAN reports whether letters and digits have the check of ISO 7064: the first four characters moved to the end,
// letters as 10 to 35, leave 1 modulo 97.
func IBAN(b []byte) bool {
	m := 0
	for k := range b {
		c := b[(k+4)%len(b)]
		if c >= '0' && c <= '9' {
			m = (m*10 + int(c-'0')) % 97
		} else {
			m = (m*100 + int(c|0x20-'a') + 10) % 97
		}
	}
	return m == 1
}

// Base58 reports whether b is base58 of 25 bytes that end in the check of the first 21.
func Base58(b []byte) bool {
	const alphabet = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
	var n [25]byte
	for _, c := range b {
		carry := strings.IndexByte(alphabet, c)
		if carry < 0 {
			return false
		}
		for k := len(n) - 1; k >= 0; k-- {
			carry += 58 * int(n[k])
			n[k] = byte(carry)
			carry >>= 8
		}
		if carry != 0 {
			return false
		}
	}
	once := sha256.Sum256(n[:21])
	twice := sha256.Sum256(once[:])
	return string(twice[:4]) == string(n[21:])
}
