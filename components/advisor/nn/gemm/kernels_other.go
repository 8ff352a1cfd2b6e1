//go:build !amd64

package gemm

// No set of vector instructions is present on other processors, so that none of these is called.

func avx512Tile12(*byte) { unreachable() }
func avx512Tile6(*byte)  { unreachable() }
func avx512Tile3(*byte)  { unreachable() }
func avx512Tile1(*byte)  { unreachable() }
func avx2Tile6(*byte)    { unreachable() }
func avx2Tile3(*byte)    { unreachable() }
func avx2Tile1(*byte)    { unreachable() }

func avx512Add(int, *float32, *float32)              { unreachable() }
func avx512Mul(int, *float32, *float32, *float32)    { unreachable() }
func avx512MulAdd(int, *float32, *float32, *float32) { unreachable() }
func avx512Gate(int, *float32, *float32)             { unreachable() }
func avx512Dot(int, *float32, *float32) float32      { unreachable(); return 0 }
func avx512Axpy(int, float32, *float32, *float32)    { unreachable() }
func avx2Add(int, *float32, *float32)                { unreachable() }
func avx2Mul(int, *float32, *float32, *float32)      { unreachable() }
func avx2MulAdd(int, *float32, *float32, *float32)   { unreachable() }
func avx2Gate(int, *float32, *float32)               { unreachable() }
func avx2Dot(int, *float32, *float32) float32        { unreachable(); return 0 }
func avx2Axpy(int, float32, *float32, *float32)      { unreachable() }

func unreachable() { panic("gemm: no vector instructions here") }
