/* niah_words.c: the word lists (niah_words.h). Ours; common English words. Append nothing, change no order. */
#include "tasks/niah_words.h"

/* clang-format off */
/* sentence starters (tokens without and with a leading space) */
const char *const words_start[11] = {
	"The", "One", "Every", "Some", "My", "Our", "Her", "His", "Code", "Recall", "Repeat",
};

/* function words */
const char *const words_func[26] = {
	"the", "a", "of", "in", "near", "under", "over", "behind", "beside", "with", "by", "at", "to", "from", "into", "before",
	"after", "and", "but", "while", "was", "were", "first", "second", "third", "text",
};

/* key words: never used in filler sentences */
const char *const words_key[256] = {
	"amber", "falcon", "river", "maple", "cobalt", "otter", "cedar", "lotus", "onyx", "heron", "coral", "willow", "topaz",
	"badger", "juniper", "lynx", "ruby", "sparrow", "aspen", "jade", "walrus", "birch", "opal", "pelican", "hazel", "garnet",
	"raven", "cypress", "pearl", "beaver", "fern", "quartz", "osprey", "laurel", "agate", "marten", "clover", "ivory",
	"condor", "thistle", "zircon", "gopher", "orchid", "ebony", "magpie", "tulip", "copper", "bison", "violet", "granite",
	"turtle", "poppy", "marble", "salmon", "daisy", "silver", "cougar", "iris", "bronze", "weasel", "lilac", "nickel",
	"puffin", "peony", "cinder", "jackal", "saffron", "pewter", "toucan", "ginger", "basalt", "ferret", "nutmeg", "flint",
	"lizard", "pepper", "slate", "gecko", "vanilla", "chalk", "iguana", "olive", "pebble", "cobra", "almond", "crystal",
	"viper", "walnut", "diamond", "python", "chestnut", "emerald", "panther", "acorn", "sapphire", "leopard", "pinecone",
	"sulfur", "tiger", "barley", "carbon", "cheetah", "millet", "helium", "jaguar", "sesame", "neon", "ocelot", "ginseng",
	"argon", "puma", "mustard", "xenon", "gazelle", "radish", "krypton", "impala", "turnip", "radon", "antelope", "parsnip",
	"zinc", "buffalo", "carrot", "cadmium", "camel", "celery", "barium", "llama", "pumpkin", "lithium", "alpaca", "squash",
	"sodium", "donkey", "melon", "calcium", "zebra", "papaya", "silicon", "giraffe", "mango", "titanium", "rhino", "guava",
	"iron", "hippo", "banana", "platinum", "elephant", "cherry", "tungsten", "monkey", "peach", "mercury", "gorilla",
	"apricot", "uranium", "lemur", "plum", "boron", "panda", "fig", "helmet", "koala", "grape", "anchor", "wombat", "lemon",
	"lantern", "kangaroo", "lime", "compass", "dingo", "orange", "hammer", "possum", "kiwi", "shovel", "emu", "berry",
	"ladder", "ostrich", "currant", "bucket", "penguin", "raisin", "kettle", "seal", "prune", "saddle", "dolphin", "tomato",
	"whistle", "whale", "potato", "trumpet", "shark", "onion", "violin", "tuna", "garlic", "piano", "squid", "spinach",
	"guitar", "octopus", "cabbage", "banjo", "crab", "lettuce", "fiddle", "lobster", "broccoli", "cello", "shrimp", "kale",
	"flute", "oyster", "arugula", "clarinet", "clam", "fennel", "bugle", "snail", "leek", "drum", "spider", "shallot",
	"cymbal", "beetle", "chive", "harp", "cricket", "parsley", "lute", "hornet", "basil", "oboe", "wasp", "oregano", "tuba",
	"mantis", "thyme", "viola", "moth", "sage", "zither", "ant", "mint", "sitar", "flea", "dill", "ukulele", "tick", "cumin",
};

/* filler words: people first (N_PEOPLE), then things */
const char *const words_noun[118] = {
	"man", "woman", "child", "teacher", "farmer", "doctor", "sailor", "painter", "baker", "miller", "driver", "writer",
	"singer", "dancer", "hunter", "fisher", "builder", "soldier", "captain", "king", "queen", "prince", "judge", "lawyer",
	"clerk", "nurse", "cook", "tailor", "barber", "guard", "porter", "pilot", "priest", "student", "scholar", "poet",
	"actor", "neighbor", "cousin", "uncle", "aunt", "brother", "sister", "father", "mother", "friend", "stranger",
	"merchant", "shepherd", "gardener", "house", "barn", "road", "bridge", "tower", "castle", "church", "school", "market",
	"garden", "field", "forest", "hill", "valley", "mountain", "lake", "shore", "harbor", "village", "city", "street",
	"corner", "window", "door", "table", "chair", "bench", "wall", "gate", "fence", "roof", "floor", "kitchen", "cellar",
	"attic", "wagon", "boat", "ship", "train", "engine", "wheel", "rope", "basket", "bottle", "box", "bag", "coat", "hat",
	"shoe", "glove", "letter", "book", "paper", "pencil", "map", "picture", "mirror", "clock", "bell", "candle", "lamp",
	"fire", "stone", "cloud", "wind", "storm", "rain", "snow",
};

const char *const words_adj[62] = {
	"old", "young", "tall", "short", "big", "small", "quiet", "loud", "happy", "sad", "tired", "angry", "gentle", "kind",
	"cruel", "brave", "shy", "clever", "foolish", "rich", "poor", "strong", "weak", "quick", "slow", "bright", "dark",
	"warm", "cold", "wet", "dry", "clean", "dirty", "heavy", "light", "new", "broken", "empty", "full", "open", "narrow",
	"wide", "deep", "round", "square", "soft", "hard", "smooth", "rough", "sharp", "sweet", "bitter", "fresh", "pale",
	"golden", "wooden", "busy", "idle", "honest", "proud", "humble", "lucky",
};

/* past tense, all take an object */
const char *const words_verb[40] = {
	"saw", "heard", "followed", "carried", "watched", "found", "left", "reached", "passed", "painted", "cleaned", "opened",
	"closed", "lifted", "dropped", "pushed", "pulled", "crossed", "entered", "visited", "admired", "praised", "blamed",
	"warned", "helped", "pleased", "feared", "trusted", "remembered", "forgot", "ignored", "noticed", "described",
	"measured", "counted", "moved", "repaired", "bought", "sold", "borrowed",
};

const char *const words_adv[20] = {
	"slowly", "quickly", "quietly", "loudly", "again", "twice", "often", "always", "never", "early", "late", "today",
	"yesterday", "together", "alone", "gladly", "sadly", "calmly", "suddenly", "carefully",
};
/* clang-format on */
