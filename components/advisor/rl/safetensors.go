package rl

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"slices"
)

// Tensor is one entry of a safetensors file: F32 if Float is set, I32 if Int is, otherwise raw bytes (U8).
type Tensor struct {
	Name  string
	Shape []int
	Float []float32
	Int   []int32
	Raw   []byte
}

type tensorHeader struct {
	DType   string   `json:"dtype"`
	Shape   []int    `json:"shape"`
	Offsets [2]int64 `json:"data_offsets"`
}

// maxHeader bounds the header of a file that is read.
const maxHeader = 64 << 20

// EncodeTensors writes the safetensors format: the length of a JSON header, the header, and the data in the header's order. Equal
// contents give equal bytes.
func EncodeTensors(metadata map[string]string, tensors []Tensor) ([]byte, error) {
	sorted := slices.Clone(tensors)
	slices.SortFunc(sorted, func(a, b Tensor) int { return bytes.Compare([]byte(a.Name), []byte(b.Name)) })
	header := map[string]any{"__metadata__": metadata}
	var data []byte
	for _, t := range sorted {
		if _, twice := header[t.Name]; twice || t.Name == "" {
			return nil, fmt.Errorf("a tensor's name %q is empty or given twice", t.Name)
		}
		h := tensorHeader{DType: "U8", Shape: t.Shape}
		h.Offsets[0] = int64(len(data))
		switch {
		case t.Float != nil:
			h.DType = "F32"
			for _, v := range t.Float {
				data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v))
			}
		case t.Int != nil:
			h.DType = "I32"
			for _, v := range t.Int {
				data = binary.LittleEndian.AppendUint32(data, uint32(v))
			}
		default:
			data = append(data, t.Raw...)
		}
		h.Offsets[1] = int64(len(data))
		header[t.Name] = h
	}
	j, err := json.Marshal(header) // sorts the keys
	if err != nil {
		return nil, err
	}
	for len(j)%8 != 0 {
		j = append(j, ' ')
	}
	out := binary.LittleEndian.AppendUint64(make([]byte, 0, 8+len(j)+len(data)), uint64(len(j)))
	return append(append(out, j...), data...), nil
}

// DecodeTensors reads what EncodeTensors, or another writer of the format, wrote. It refuses whatever is not whole.
func DecodeTensors(b []byte) (map[string]string, map[string]Tensor, error) {
	if len(b) < 8 {
		return nil, nil, fmt.Errorf("the file ends after %d bytes, before the header's length; it is truncated or no safetensors file", len(b))
	}
	n := binary.LittleEndian.Uint64(b)
	if n > maxHeader || n > uint64(len(b)-8) {
		return nil, nil, fmt.Errorf("the header is said to have %d bytes, the file has %d; it is truncated or no safetensors file", n, len(b))
	}
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(b[8:8+n], &raw); err != nil {
		return nil, nil, fmt.Errorf("the header is not JSON: %w", err)
	}
	data := b[8+n:]
	var meta map[string]string
	out := map[string]Tensor{}
	var spans [][2]int64
	for name, r := range raw {
		if name == "__metadata__" {
			if err := json.Unmarshal(r, &meta); err != nil {
				return nil, nil, fmt.Errorf("the metadata are not strings: %w", err)
			}
			continue
		}
		var h tensorHeader
		if err := json.Unmarshal(r, &h); err != nil {
			return nil, nil, fmt.Errorf("tensor %s: %w", name, err)
		}
		t, err := decodeTensor(name, h, data)
		if err != nil {
			return nil, nil, err
		}
		out[name] = t
		spans = append(spans, h.Offsets)
	}
	// One after the other, without holes and without sharing.
	slices.SortFunc(spans, func(a, b [2]int64) int { return cmp.Or(cmp.Compare(a[0], b[0]), cmp.Compare(a[1], b[1])) })
	end := int64(0)
	for _, s := range spans {
		if s[0] != end {
			return nil, nil, fmt.Errorf("a tensor begins at byte %d of the data, the one before ends at %d", s[0], end)
		}
		end = s[1]
	}
	if end != int64(len(data)) {
		return nil, nil, fmt.Errorf("the tensors end after %d bytes of data, the file has %d", end, len(data))
	}
	return meta, out, nil
}

func decodeTensor(name string, h tensorHeader, data []byte) (Tensor, error) {
	a, z := h.Offsets[0], h.Offsets[1]
	if a < 0 || z < a || z > int64(len(data)) {
		return Tensor{}, fmt.Errorf("tensor %s lies at bytes %d to %d of %d; the file is truncated", name, a, z, len(data))
	}
	size, count := map[string]int64{"F32": 4, "I32": 4, "U8": 1}[h.DType], int64(1)
	if size == 0 {
		return Tensor{}, fmt.Errorf("tensor %s is of type %s; F32, I32 and U8 are read", name, h.DType)
	}
	for _, d := range h.Shape {
		if d < 0 || int64(d) > int64(len(data))+1 || count > int64(len(data))+1 {
			return Tensor{}, fmt.Errorf("tensor %s has the shape %v, which the file cannot hold", name, h.Shape)
		}
		count *= int64(d)
	}
	if count*size != z-a {
		return Tensor{}, fmt.Errorf("tensor %s has the shape %v and %d bytes", name, h.Shape, z-a)
	}
	t := Tensor{Name: name, Shape: h.Shape}
	switch h.DType {
	case "F32":
		t.Float = make([]float32, count)
		for i := range t.Float {
			t.Float[i] = math.Float32frombits(binary.LittleEndian.Uint32(data[a+4*int64(i):]))
			if v := t.Float[i]; v-v != 0 {
				return Tensor{}, fmt.Errorf("tensor %s: element %d is %g", name, i, v)
			}
		}
	case "I32":
		t.Int = make([]int32, count)
		for i := range t.Int {
			t.Int[i] = int32(binary.LittleEndian.Uint32(data[a+4*int64(i):]))
		}
	default:
		t.Raw = data[a:z:z]
	}
	return t, nil
}
