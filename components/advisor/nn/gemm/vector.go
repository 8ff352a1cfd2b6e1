package gemm

// Add adds a to dst.
func Add(dst, a []float32) {
	n := len(dst)
	a = a[:n]
	v := 0
	switch {
	case n == 0:
	case present == avx512:
		v = n &^ 15
		avx512Add(v, &dst[0], &a[0])
	case present == avx2:
		v = n &^ 7
		avx2Add(v, &dst[0], &a[0])
	}
	for i := v; i < n; i++ {
		dst[i] += a[i]
	}
}

// Mul sets dst to the elementwise product of a and b.
func MulTo(dst, a, b []float32) {
	n := len(dst)
	a, b = a[:n], b[:n]
	v := 0
	switch {
	case n == 0:
	case present == avx512:
		v = n &^ 15
		avx512Mul(v, &dst[0], &a[0], &b[0])
	case present == avx2:
		v = n &^ 7
		avx2Mul(v, &dst[0], &a[0], &b[0])
	}
	for i := v; i < n; i++ {
		dst[i] = a[i] * b[i]
	}
}

// MulAdd adds the elementwise product of a and b to dst.
func MulAdd(dst, a, b []float32) {
	n := len(dst)
	a, b = a[:n], b[:n]
	v := 0
	switch {
	case n == 0:
	case present == avx512:
		v = n &^ 15
		avx512MulAdd(v, &dst[0], &a[0], &b[0])
	case present == avx2:
		v = n &^ 7
		avx2MulAdd(v, &dst[0], &a[0], &b[0])
	}
	for i := v; i < n; i++ {
		dst[i] += a[i] * b[i]
	}
}

// Gate clears d where y is not above zero.
func Gate(d, y []float32) {
	n := len(d)
	y = y[:n]
	v := 0
	switch {
	case n == 0:
	case present == avx512:
		v = n &^ 15
		avx512Gate(v, &d[0], &y[0])
	case present == avx2:
		v = n &^ 7
		avx2Gate(v, &d[0], &y[0])
	}
	for i := v; i < n; i++ {
		if !(y[i] > 0) {
			d[i] = 0
		}
	}
}

// Axpy adds s·a to dst.
func Axpy(s float32, dst, a []float32) {
	n := len(dst)
	a = a[:n]
	v := 0
	switch {
	case n == 0:
	case present == avx512:
		v = n &^ 15
		avx512Axpy(v, s, &dst[0], &a[0])
	case present == avx2:
		v = n &^ 7
		avx2Axpy(v, s, &dst[0], &a[0])
	}
	for i := v; i < n; i++ {
		dst[i] += s * a[i]
	}
}

// Dot is the inner product of a and b.
func Dot(a, b []float32) float32 {
	n := len(a)
	b = b[:n]
	v, s := 0, float32(0)
	switch {
	case n == 0:
	case present == avx512:
		v = n &^ 15
		s = avx512Dot(v, &a[0], &b[0])
	case present == avx2:
		v = n &^ 7
		s = avx2Dot(v, &a[0], &b[0])
	}
	for i := v; i < n; i++ {
		s += a[i] * b[i]
	}
	return s
}
