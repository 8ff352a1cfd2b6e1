package slurmrest

import (
	"fmt"
	"strconv"
	"strings"
)

// GRES is one generic resource of a node's Gres or GresUsed: gpu, mps or shard, its type ("" for none) and how many.
type GRES struct {
	Name, Type string
	Count      int64
}

// maxGRES bounds a string of GRES; Slurm's own are a few dozen bytes.
const maxGRES = 64 << 10

// ParseGRES reads Slurm's strings of generic resources: "gpu:rtx4070:1,mps:rtx4070:100", and those with what is in use,
// "gpu:rtx4070:0(IDX:N/A),mps:rtx4070:25(25/100)". What stands in parentheses is per card and left out. "" is none.
func ParseGRES(text string) ([]GRES, error) {
	if len(text) > maxGRES {
		return nil, fmt.Errorf("a list of GRES of %d bytes is none of Slurm's", len(text))
	}
	var all []GRES
	for rest := text; rest != "" && rest != "(null)"; {
		var item string
		item, rest = cutGRES(rest)
		name, _, _ := strings.Cut(item, "(")
		words := strings.Split(strings.TrimSpace(name), ":")
		gres := GRES{Name: words[0], Count: 1}
		switch last := words[len(words)-1]; {
		case gres.Name == "" || len(words) > 3:
			return nil, fmt.Errorf("%q is no GRES; they are name[:type][:count]", item)
		case len(words) > 1:
			count, err := parseCount(last)
			if err != nil && len(words) == 3 {
				return nil, fmt.Errorf("%q is no GRES: %w", item, err)
			}
			if err != nil { // name:type
				gres.Type = last
				break
			}
			gres.Count = count
			if len(words) == 3 {
				gres.Type = words[1]
			}
		}
		all = append(all, gres)
	}
	return all, nil
}

// cutGRES cuts at the first comma outside of parentheses.
func cutGRES(text string) (first, rest string) {
	depth := 0
	for i, r := range text {
		switch r {
		case '(':
			depth++
		case ')':
			depth--
		case ',':
			if depth == 0 {
				return text[:i], text[i+1:]
			}
		}
	}
	return text, ""
}

// parseCount reads a count with Slurm's suffixes of 1,024 (K, M, G).
func parseCount(text string) (int64, error) {
	factor := int64(1)
	if i := strings.IndexAny(text, "KMG"); i > 0 && i == len(text)-1 {
		factor = map[byte]int64{'K': 1 << 10, 'M': 1 << 20, 'G': 1 << 30}[text[i]]
		text = text[:i]
	}
	count, err := strconv.ParseInt(text, 10, 32)
	if err != nil || count < 0 {
		return 0, fmt.Errorf("%q is no count", text)
	}
	return count * factor, nil
}

// CountGRES is how many of a resource a list has, of all types.
func CountGRES(all []GRES, name string) (count int64) {
	for _, gres := range all {
		if gres.Name == name {
			count += gres.Count
		}
	}
	return count
}
