// What the browser's DecompressionStream does, for browsers that have none: what is in a gzip file (RFC 1951, 1952).

/** Of codes for lengths and distances: the least that each stands for, and how many bits follow. */
const INFLATE_LENGTHS = [3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 15, 17, 19, 23, 27, 31, 35, 43, 51, 59, 67, 83, 99, 115, 131,
  163, 195, 227, 258];
const INFLATE_LENGTH_BITS = [0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0];
const INFLATE_DISTANCES = [1, 2, 3, 4, 5, 7, 9, 13, 17, 25, 33, 49, 65, 97, 129, 193, 257, 385, 513, 769, 1025, 1537,
  2049, 3073, 4097, 6145, 8193, 12289, 16385, 24577];
/** In which order the lengths of the codes for code lengths are written. */
const INFLATE_ORDER = [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15];

/** Bits of a text of bytes, the lowest of each byte first. */
class InflateBits {
  constructor(bytes, at) {
    this.bytes = bytes;
    this.at = at;
    this.held = 0;
    this.count = 0;
  }

  take(wanted) {
    while (this.count < wanted) {
      if (this.at >= this.bytes.length) throw new Error("the compressed data end too soon");
      this.held |= this.bytes[this.at] << this.count;
      this.at += 1;
      this.count += 8;
    }
    const taken = this.held & ((1 << wanted) - 1);
    this.held >>>= wanted;
    this.count -= wanted;
    return taken;
  }

  /** Leave out the rest of the byte, and return where the next one is. */
  align() {
    this.at -= this.count >> 3;
    this.held = 0;
    this.count = 0;
    return this.at;
  }
}

/** Return a code as how many of its words have each length, and their symbols in order. */
function inflateCode(lengths) {
  const counts = new Uint16Array(16);
  for (const length of lengths) counts[length] += 1;
  counts[0] = 0;
  const places = new Uint16Array(17);
  for (let length = 1; length < 16; length += 1) places[length + 1] = places[length] + counts[length];
  const symbols = new Uint16Array(lengths.length);
  for (const [symbol, length] of lengths.entries()) {
    if (length) symbols[places[length]++] = symbol;
  }
  return { counts, symbols };
}

/** Read one word of a code, bit by bit: words of one length follow one another. */
function inflateSymbol(bits, code) {
  let word = 0;
  let first = 0;
  let place = 0;
  for (let length = 1; length < 16; length += 1) {
    word |= bits.take(1);
    const count = code.counts[length];
    if (word - first < count) return code.symbols[place + word - first];
    place += count;
    first = (first + count) << 1;
    word <<= 1;
  }
  throw new Error("the compressed data have a word that their code has not");
}

/** Return the codes that are always the same. */
function inflateFixed() {
  const lengths = Array.from({ length: 288 }, (_, n) => (n < 144 ? 8 : n < 256 ? 9 : n < 280 ? 7 : 8));
  return [inflateCode(lengths), inflateCode(new Array(30).fill(5))];
}

/** Read the codes that a block has of its own. */
function inflateDynamic(bits) {
  const literals = bits.take(5) + 257;
  const distances = bits.take(5) + 1;
  const written = bits.take(4) + 4;
  const short = new Array(19).fill(0);
  for (let n = 0; n < written; n += 1) short[INFLATE_ORDER[n]] = bits.take(3);
  const code = inflateCode(short);
  const lengths = [];
  while (lengths.length < literals + distances) {
    const symbol = inflateSymbol(bits, code);
    if (symbol < 16) lengths.push(symbol);
    else if (symbol === 16 && !lengths.length) throw new Error("the compressed data repeat what is not there");
    else if (symbol === 16) lengths.push(...new Array(3 + bits.take(2)).fill(lengths[lengths.length - 1]));
    else lengths.push(...new Array(symbol === 17 ? 3 + bits.take(3) : 11 + bits.take(7)).fill(0));
  }
  return [inflateCode(lengths.slice(0, literals)), inflateCode(lengths.slice(literals, literals + distances))];
}

/** What has been unpacked so far; its room doubles as it fills. */
class InflateOutput {
  constructor(size) {
    this.bytes = new Uint8Array(size);
    this.size = 0;
  }

  room(more) {
    if (this.size + more <= this.bytes.length) return;
    const larger = new Uint8Array(2 * (this.size + more));
    larger.set(this.bytes.subarray(0, this.size));
    this.bytes = larger;
  }

  copy(distance, length) {
    if (distance > this.size) throw new Error("the compressed data repeat what is not there");
    this.room(length);
    for (let n = 0; n < length; n += 1, this.size += 1) this.bytes[this.size] = this.bytes[this.size - distance];
  }
}

function inflateStored(bits, output) {
  const at = bits.align();
  const length = bits.bytes[at] | (bits.bytes[at + 1] << 8);
  if (at + 4 + length > bits.bytes.length) throw new Error("the compressed data end too soon");
  output.room(length);
  output.bytes.set(bits.bytes.subarray(at + 4, at + 4 + length), output.size);
  output.size += length;
  bits.at = at + 4 + length;
}

function inflateBlock(bits, output, [literals, distances]) {
  for (;;) {
    const symbol = inflateSymbol(bits, literals);
    if (symbol === 256) return;
    if (symbol < 256) {
      output.room(1);
      output.bytes[output.size++] = symbol;
    } else {
      const length = INFLATE_LENGTHS[symbol - 257] + bits.take(INFLATE_LENGTH_BITS[symbol - 257]);
      const far = inflateSymbol(bits, distances);
      output.copy(INFLATE_DISTANCES[far] + bits.take(far < 4 ? 0 : (far >> 1) - 1), length);
    }
  }
}

/** Return the contents of a gzip file of one member, both as bytes. Throws an Error for anything else. */
function inflateGzip(bytes) {
  if (bytes[0] !== 0x1f || bytes[1] !== 0x8b || bytes[2] !== 8) throw new Error("this is not compressed by gzip");
  let at = 10;
  const flags = bytes[3];
  if (flags & 4) at += 2 + (bytes[at] | (bytes[at + 1] << 8));
  for (const named of [8, 16]) {
    if (flags & named) at = bytes.indexOf(0, at) + 1;
  }
  if (flags & 2) at += 2;
  const bits = new InflateBits(bytes, at);
  const output = new InflateOutput(4 * bytes.length);
  for (let last = false; !last; ) {
    last = bits.take(1) === 1;
    const kind = bits.take(2);
    if (kind === 3) throw new Error("the compressed data have a block of no known kind");
    if (kind === 0) inflateStored(bits, output);
    else inflateBlock(bits, output, kind === 1 ? inflateFixed() : inflateDynamic(bits));
  }
  return output.bytes.subarray(0, output.size);
}
