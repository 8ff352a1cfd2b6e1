// Package shape reads what a CUE schema says of its fields (types, bounds, forms, defaults, comments) into a plain tree, from which
// a JSON Schema and a reference for people are written. What holds between fields is the schema's own and not in the tree.
//
// An expression that the package does not know is an error: nothing that a schema demands is left out without a word.
package shape

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"cuelang.org/go/cue"
)

// Field is one field of an object.
type Field struct {
	Name     string
	Doc      string // the schema's comment, on one line; "" without one
	Required bool   // the user must write it
	Default  string // as CUE; "" without one
	Derived  bool   // follows from other fields
	Type     *Type
}

// Type says what a value may be. A value that is one of several forms has Alternatives and nothing else but Message.
type Type struct {
	Kind         string // of JSON Schema: object, array, string, integer, number, boolean, null; "" for any
	Enum         []any
	Not          []any    // values that are not taken
	Patterns     []string // regular expressions, all of which match
	NotPatterns  []string
	Format       string   // "ipv4" or "cidr"
	Min, Max     *float64 // both included
	Above, Below *float64 // both excluded
	Message      string   // the schema's own words for a value that is none of this

	Fields       []Field // object
	Open         bool    // object: further fields are allowed
	Members      *Type   // object: what the fields hold that the user names
	Names        *Type   // object: what these names may be
	MaxFields    int     // object: 0 for any number
	Elements     *Type   // array
	MinLength    int     // array
	Alternatives []*Type
}

// Needs reports whether an object has fields, at any depth, that the user must write.
func (t *Type) Needs() bool {
	return slices.ContainsFunc(t.Fields, func(f Field) bool { return f.Required })
}

// aName stands for a name that the user gives, where a schema's rules for such names are looked up.
const aName = "some-name"

// Of reads the shape of a definition that is a struct. All structs in it are closed but those that say otherwise with `...`.
func Of(definition cue.Value) (*Type, error) {
	if err := definition.Err(); err != nil && !definition.Exists() {
		return nil, err
	}
	return object(definition) // not typeOf: with no value of the user's, its rules may be in error
}

func typeOf(v cue.Value) (*Type, error) {
	switch v.IncompleteKind() {
	case cue.StructKind:
		return object(v)
	case cue.ListKind:
		return array(v)
	}
	if _, path := v.ReferencePath(); len(path.Selectors()) > 0 {
		v = cue.Dereference(v)
	}
	op, args := v.Expr()
	switch op {
	case cue.OrOp:
		return anyOf(args)
	case cue.AndOp:
		return allOf(args)
	case cue.RegexMatchOp, cue.NotRegexMatchOp, cue.NotEqualOp, cue.GreaterThanOp, cue.GreaterThanEqualOp, cue.LessThanOp, cue.LessThanEqualOp:
		return bound(op, args)
	case cue.CallOp:
		return builtin(v, args)
	}
	if v.IsConcrete() {
		value, err := literal(v)
		return &Type{Kind: kindName(v.Kind()), Enum: []any{value}}, err
	}
	switch kind := v.IncompleteKind(); kind {
	case cue.StringKind, cue.IntKind, cue.NumberKind, cue.BoolKind, cue.NullKind:
		return &Type{Kind: kindName(kind)}, nil
	case cue.TopKind:
		if fmt.Sprint(v) == "_" {
			return &Type{}, nil
		}
		return builtin(v, []cue.Value{v}) // a validator without arguments
	}
	return nil, fmt.Errorf("%s: cannot tell the type of %v (%v, %v)", v.Path(), v, op, v.IncompleteKind())
}

func kindName(k cue.Kind) string {
	return map[cue.Kind]string{
		cue.StringKind: "string", cue.IntKind: "integer", cue.FloatKind: "number", cue.NumberKind: "number", cue.BoolKind: "boolean", cue.NullKind: "null",
		cue.StructKind: "object", cue.ListKind: "array",
	}[k]
}

// literal is a concrete value as Go has it.
func literal(v cue.Value) (any, error) {
	var value any
	err := v.Decode(&value)
	return value, err
}

// isError reports whether an arm of a disjunction only carries the message for values that no other takes.
func isError(v cue.Value) (message string, is bool) {
	op, args := v.Expr()
	if op != cue.CallOp || builtinName(args[0]) != "error" {
		return "", false
	}
	message, _ = args[1].String() // one that names the value itself has no text of its own
	return message, true
}

func builtinName(v cue.Value) string { return strings.TrimSuffix(fmt.Sprint(v), "()") }

func anyOf(args []cue.Value) (*Type, error) {
	out := &Type{}
	var enum *Type
	for _, arg := range args {
		if message, is := isError(arg); is {
			out.Message = message
			continue
		}
		if arg.IncompleteKind() == cue.BottomKind { // the value of another field, which the user has yet to write
			continue
		}
		t, err := typeOf(arg)
		if err != nil {
			return nil, err
		}
		forms := []*Type{t}
		if t.Alternatives != nil {
			forms = t.Alternatives
		}
		if out.Message == "" {
			out.Message = t.Message
		}
		for _, form := range forms {
			if form.Enum != nil && form.Patterns == nil {
				if enum == nil {
					enum = &Type{Kind: form.Kind}
					out.Alternatives = append(out.Alternatives, enum)
				}
				if enum.Kind != form.Kind {
					enum.Kind = ""
				}
				for _, value := range form.Enum {
					if !slices.Contains(enum.Enum, value) {
						enum.Enum = append(enum.Enum, value)
					}
				}
				continue
			}
			out.Alternatives = append(out.Alternatives, form)
		}
	}
	out.Alternatives = withoutTaken(out.Alternatives)
	if len(out.Alternatives) == 1 {
		one := *out.Alternatives[0]
		if out.Message != "" {
			one.Message = out.Message
		}
		return &one, nil
	}
	return out, nil
}

// withoutTaken drops listed values that another form takes too: the default of *"slurm" | #Label is a label itself.
func withoutTaken(forms []*Type) []*Type {
	var out []*Type
	for _, form := range forms {
		if form.Enum != nil {
			form.Enum = slices.DeleteFunc(form.Enum, func(value any) bool {
				return slices.ContainsFunc(forms, func(other *Type) bool { return other.Enum == nil && other.takes(value) })
			})
			if len(form.Enum) == 0 {
				continue
			}
		}
		out = append(out, form)
	}
	return out
}

// takes reports whether a scalar is of the type, as far as its kind, forms and bounds say.
func (t *Type) takes(value any) bool {
	switch value := value.(type) {
	case string:
		if t.Kind != "string" {
			return false
		}
		for _, p := range t.Patterns {
			if !regexp.MustCompile(p).MatchString(value) {
				return false
			}
		}
		return true
	case bool:
		return t.Kind == "boolean"
	}
	number, err := strconv.ParseFloat(fmt.Sprint(value), 64)
	if err != nil || t.Kind != "integer" && t.Kind != "number" {
		return false
	}
	return (t.Min == nil || number >= *t.Min) && (t.Max == nil || number <= *t.Max) && (t.Above == nil || number > *t.Above) && (t.Below == nil || number < *t.Below)
}

func allOf(args []cue.Value) (*Type, error) {
	out := &Type{}
	for _, arg := range args {
		t, err := typeOf(arg)
		if err != nil {
			return nil, err
		}
		if err := out.meet(t); err != nil {
			return nil, fmt.Errorf("%s: %w", arg.Path(), err)
		}
	}
	return out, nil
}

// meet narrows t to what is also of the other type.
func (t *Type) meet(other *Type) error {
	switch {
	case t.Alternatives == nil && isAny(t):
		message := t.Message
		*t = *other
		if message != "" {
			t.Message = message
		}
		return nil
	case isAny(other):
		return nil
	case t.Alternatives != nil || other.Alternatives != nil:
		return fmt.Errorf("the shape of a value that must be several things at once, one of them a choice, is not known")
	case t.Fields != nil || other.Fields != nil || t.Elements != nil || other.Elements != nil:
		return fmt.Errorf("the shape of a value that is several structs or lists at once is not known")
	}
	if t.Kind == "" || t.Kind == "number" && other.Kind == "integer" {
		t.Kind = other.Kind
	}
	if other.Enum != nil {
		t.Enum = other.Enum
	}
	t.Not = append(t.Not, other.Not...)
	t.Patterns = append(t.Patterns, other.Patterns...)
	t.NotPatterns = append(t.NotPatterns, other.NotPatterns...)
	for _, limit := range []struct{ mine, others **float64 }{{&t.Min, &other.Min}, {&t.Max, &other.Max}, {&t.Above, &other.Above}, {&t.Below, &other.Below}} {
		if *limit.mine == nil {
			*limit.mine = *limit.others
		}
	}
	for _, text := range []struct{ mine, others *string }{{&t.Format, &other.Format}, {&t.Message, &other.Message}} {
		if *text.mine == "" {
			*text.mine = *text.others
		}
	}
	return nil
}

func isAny(t *Type) bool {
	return t.Kind == "" && t.Enum == nil && t.Not == nil && t.Patterns == nil && t.NotPatterns == nil && t.Alternatives == nil && t.Min == nil && t.Max == nil && t.Above == nil && t.Below == nil
}

func bound(op cue.Op, args []cue.Value) (*Type, error) {
	value, err := literal(args[0])
	if err != nil {
		return nil, err
	}
	if op == cue.NotEqualOp {
		return &Type{Not: []any{value}}, nil
	}
	if text, is := value.(string); is {
		switch op {
		case cue.RegexMatchOp:
			return &Type{Kind: "string", Patterns: []string{text}}, nil
		case cue.NotRegexMatchOp:
			return &Type{Kind: "string", NotPatterns: []string{text}}, nil
		}
	}
	number, err := args[0].Float64()
	if err != nil {
		return nil, err
	}
	t := &Type{Kind: "number"}
	switch op {
	case cue.GreaterThanEqualOp:
		t.Min = &number
	case cue.GreaterThanOp:
		t.Above = &number
	case cue.LessThanEqualOp:
		t.Max = &number
	case cue.LessThanOp:
		t.Below = &number
	}
	return t, nil
}

// builtin reads a validator.
func builtin(v cue.Value, args []cue.Value) (*Type, error) {
	if len(args) == 0 {
		return nil, fmt.Errorf("%s: %v: not known", v.Path(), v)
	}
	count := 0
	if len(args) > 1 {
		if n, err := args[1].Int64(); err == nil {
			count = int(n)
		}
	}
	switch name := builtinName(args[0]); name {
	case "net.IPv4":
		return &Type{Kind: "string", Format: "ipv4"}, nil
	case "net.IPCIDR":
		return &Type{Kind: "string", Format: "cidr"}, nil
	case "list.MinItems":
		return &Type{Kind: "array", MinLength: count}, nil
	case "struct.MaxFields":
		return &Type{Kind: "object", MaxFields: count}, nil
	default:
		return nil, fmt.Errorf("%s: %s: not known", v.Path(), name)
	}
}

func array(v cue.Value) (*Type, error) {
	t := &Type{Kind: "array"}
	var err error
	if element := v.LookupPath(cue.MakePath(cue.AnyIndex)); element.Exists() {
		if t.Elements, err = typeOf(element); err != nil {
			return nil, err
		}
	}
	if given, err := v.List(); err == nil { // those before the dots
		for given.Next() {
			t.MinLength++
		}
	}
	return t, t.validators(v)
}

// validators takes in what bounds the number of an object's fields or an array's elements.
func (t *Type) validators(v cue.Value) error {
	op, args := v.Expr()
	if op != cue.AndOp {
		return nil
	}
	for _, arg := range args {
		if inner, _ := arg.Expr(); inner != cue.CallOp {
			continue
		}
		_, call := arg.Expr()
		found, err := builtin(arg, call)
		if err != nil {
			return err
		}
		t.MinLength, t.MaxFields = max(t.MinLength, found.MinLength), max(t.MaxFields, found.MaxFields)
	}
	return nil
}

func object(v cue.Value) (*Type, error) {
	t := &Type{Kind: "object", Open: ellipsis(v)}
	fields, err := v.Fields(cue.Optional(true), cue.Patterns(true))
	if err != nil {
		return nil, err
	}
	for fields.Next() {
		selector, value := fields.Selector(), fields.Value()
		if selector.LabelType() == cue.StringLabel && selector.ConstraintType() == cue.PatternConstraint {
			if err := t.pattern(selector.Pattern(), value); err != nil {
				return nil, err
			}
			continue
		}
		name := selector.Unquoted()
		field, err := fieldOf(name, selector.ConstraintType(), value)
		if err != nil {
			return nil, err
		}
		if field.Type.Kind == "null" { // a name that members must not have
			t.names().Not = append(t.names().Not, name)
			continue
		}
		t.Fields = append(t.Fields, field)
	}
	if t.Members != nil {
		t.Open = false
		if member := v.LookupPath(cue.MakePath(cue.Str(aName).Optional())); member.Exists() { // all patterns together
			if whole, err := typeOf(member); err == nil && whole.Kind != "null" {
				t.Members = whole
			}
		}
	}
	return t, t.validators(v)
}

func (t *Type) names() *Type {
	if t.Names == nil {
		t.Names = &Type{Kind: "string"}
	}
	return t.Names
}

// pattern takes in a constraint [PATTERN]: value. One whose value is null | error says which names are refused; else it says
// what fields of these names hold.
func (t *Type) pattern(pattern, value cue.Value) error {
	held, err := typeOf(value)
	if err != nil {
		return err
	}
	name, err := typeOf(pattern)
	if err != nil {
		return err
	}
	if held.Kind == "null" {
		t.names().Patterns = append(t.names().Patterns, name.NotPatterns...)
		t.names().NotPatterns = append(t.names().NotPatterns, name.Patterns...)
		return nil
	}
	if t.Members != nil && !isAny(t.Members) && name.Patterns == nil {
		return nil // object reads all of them together
	}
	t.Members = held
	if name.Patterns != nil {
		t.names().Patterns = append(t.names().Patterns, name.Patterns...)
	}
	return nil
}

func fieldOf(name string, constraint cue.SelectorType, v cue.Value) (Field, error) {
	f := Field{Name: name, Doc: docOf(v), Required: constraint == cue.RequiredConstraint}
	given, has := v.Default()
	scalar := v.IncompleteKind() != cue.StructKind && v.IncompleteKind() != cue.ListKind
	if constraint&(cue.OptionalConstraint|cue.RequiredConstraint) == 0 && scalar && !has && v.IsConcrete() {
		f.Derived, f.Type = true, &Type{Kind: kindName(v.Kind())}
		return f, nil
	}
	if v.IncompleteKind() == cue.BottomKind { // computed from fields that a schema leaves to the user
		f.Derived, f.Type = true, &Type{Kind: declaredKind(v)}
		return f, nil
	}
	t, err := typeOf(v)
	if err != nil {
		return f, err
	}
	f.Type = t
	_, choice := v.Expr()
	switch {
	case constraint == cue.OptionalConstraint || constraint == cue.RequiredConstraint:
	case !scalar:
		f.Required = t.Needs()
	case has && given.IsConcrete() && len(choice) > 1:
		if f.Default = text(given.Syntax(cue.Final())); f.Default == strconv.Quote(aName) {
			f.Default, f.Derived = "", true
		}
	default:
		if f.Default = marked(v); f.Default == "" {
			f.Derived = true
		}
	}
	return f, nil
}
