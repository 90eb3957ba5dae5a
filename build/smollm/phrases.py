"""What customers of the training dialogs say: sentence templates of the project's own, by intent.

`{}` is what is ordered or asked about. A wish is an opening, a core and an ending, each drawn.
"""

from typing import Final


def _of(phrases: str) -> tuple[str, ...]:
    """Phrases that are divided by "|"; how they are broken into lines does not count."""
    return tuple(" ".join(phrase.split()) for phrase in phrases.split("|"))


OPENINGS: Final = (
    *("", "", "", "", "", "", "Hi, ", "Hello, ", "Hey, ", "Good morning, ", "Good evening, "),
    *("Yes, ", "Yeah, ", "Yes hi, ", "Okay, ", "Okay so ", "So, ", "All right, ", "Hmm, ", "Um, "),
    *("Please, ", "Hey there, ", "Hi there, ", "Well, ", "Uh, ", "Let me see, ", "I think "),
    *("Hi, how are you, ", "Hey, how's it going, ", "No, ", "Great, ", "Thanks, ", "Excuse me, "),
)
WISHES: Final = _of("""
    I would like {} | can I get {} | I'll have {} | could I have {} | I want {} | let me get {}
    | give me {} | I'd like {} | I'd like to order {} | may I have {} | I'll take {} | just {} |
    {} | could I get {} | can I have {} | we'll have {} | we'd like {} | can we get {} | I need
    {} | I'm going to have {} | I'll do {} | let's do {} | I'd love {} | I wanna get {} | get me
    {} | I was thinking {} | can you get me {} | could you give me {} | for me {} | I'm here for
    {} | I'll get {} | let me have {} | can I do {} | make me {} | I could go for {} | how about
    {} for me | I feel like {} | I'm in the mood for {} | set me up with {} | start me off with
    {} | go ahead and get me {} | ring up {} | order me {} | we're going with {} | I'm craving
    {} | let me try {} | I'll start with {} | today I want {} | it's {} for me | fix me {} | I
    guess {} | we were hoping for {} | do me {} | I could eat {}
""")
ADDITIONS: Final = _of("""
    and {} | also {} | can I also get {} | add {} | I would also like {} | plus {} | could you
    add {} | and can I get {} | I'll also take {} | can you add {} | and also {} | and I'd like
    {} | then {} | and then {} | with that I want {} | I also want {} | can I add {} | another
    thing, {} | one more thing, {} | oh and {} | and maybe {} | let's add {} | put {} on there
    too | we also need {} | and for my wife {} | and for my son {} | my friend wants {} | and my
    husband wants {} | he'll have {} | she'd like {} | also can I have {} | and give me {} |
    include {} | let me also get {} | toss in {} | tack on {} | as well as {} | and to go with
    it {} | we also want {} | and for the kids {} | and on the side {} | then also {} | and
    let's have {} | next I want {} | and my mom wants {} | and {} for my boss | besides that {}
    | I forgot {} | and maybe add {} | don't forget {} | I could also use {} | and after that {}
""")
PEOPLE: Final = _of("""
    my wife | my husband | my son | my daughter | my friend | my mom | my dad | she | my brother
    | my sister | my girlfriend | my boyfriend | the kids | he | my boss | my grandma | the
    little one | my buddy | our guest | my neighbor | they | the boys
""")
THEIR_WISHES: Final = _of("""
    {who} wants {} | {who} would like {} | {who} needs {} | {who} will have {} | {who} asked for
    {} | {who} gets {} | it's {} for {who} | {} for {who} | {who} said {} | for {who} {} | {who}
    will take {} | {who} would love {} | {who} is getting {}
""")
ENDINGS: Final = (
    *("", "", "", "", "", " please", " please", " please", " thanks", ", please", ", thank you"),
    *(" to go", " to start", " too", " as well", " today", " if possible", ", that would be great"),
    *(
        " right now",
        " when you can",
        " for lunch",
        ", please and thank you",
        " this time",
        ", thanks a lot",
    ),
)

ASKED: Final = _of("""
    do you have {} | do you sell {} | do you have any {} | is there {} | have you got {} | do
    you serve {} | do you guys have {} | you got {} | are there any {} | you have {} | do you
    still have {} | do you happen to sell {} | can I get {} here | what about {} | are you
    selling {} | do you offer {} | is it possible to get {} | got any {} | I wonder if you have
    {} | are {} on the menu | can one order {} here | do you make {} | would you have {} | any
    {} today | is {} something you sell | are there {} today | do you do {} | you don't have {},
    do you | can you make {} | might you have {} | can I order {} | do you carry {} | are you
    out of {} | am I right that you have {} | what if I want {} | could you make me {} | my
    friend says you have {}
""")
YES_SOME: Final = _of("""
    {} | {} please | just {} | I'll take {} | give me {} | yes, {} | {}, please | let's say {} |
    I want {} | yeah, {} | {} then | I'd like {} | make it {} | {} of them | {} would be good |
    can I get {} | okay, {} | we need {} | I'd take {} | let me have {} | then {} | go with {} |
    we'd like {} | all right, {} | {} for us | maybe {}
""")
YES_ONE: Final = _of("""
    yes | yes please | yeah | sure | okay | yes, one | one please | please
""")
NO_NOT_NOW: Final = _of("""
    no | no thanks | no thank you | not now | no, never mind | nope | not today
""")
SIZED: Final = _of("""
    {} | {} please | a {} one | {}, please | the {} one | I'll take a {} | make it {} | {} is
    fine | I'd like a {} | let's do {} | {} size | the {} | {} thanks | give me a {} | uh, {} |
    I want the {} | can I get a {} | {} would be good | in {} | just a {} | {} works | go with
    {} | let's go {} | {} will do | the {} ones | let me get {} | {} is good | {}, thanks | I
    think {} | put down {} | that's {} | {} for me | it's a {} one
""")
SIZED_BOTH: Final = _of("""
    both {} | {} for both | {} please, both of them | make both {} | both {} please
""")

PRICES: Final = _of("""
    how much is {} | what does {} cost | what's the price of {} | how much for {} | how much
    would {} be | what is {} going to cost | how expensive is {} | price of {} | can you tell me
    the price of {} | what do you charge for {} | what would {} cost me | how many dollars is {}
    | is {} expensive | and how much is {} | how much would I pay for {} | what is {} priced at
    | what are you asking for {} | what does {} run | what do I pay for {} | tell me how much {}
    costs | how much do you want for {} | what's {} going for | do you know what {} costs
""")
MENU: Final = _of("""
    what do you have | what's on the menu | what can I order | what do you sell | what are my
    options | can you tell me the menu | what kind of food do you have | what have you got |
    I've never been here, what do you have | what is there to eat
""")
DRINK_LIST: Final = _of("""
    what drinks do you have | what is there to drink | what do you have to drink | which drinks
    do you have | what sodas do you have | tell me the drinks | any cold drinks | what kind of
    drinks have you got | do you have anything to drink | drinks | what can I drink | list your
    drinks please | which soft drinks do you sell | what can you offer me to drink | I'm
    thirsty, what have you got | which drinks can I pick from | read me the drinks | what cold
    drinks are there | and to drink, what is there
""")
SIDE_LIST: Final = _of("""
    what sides do you have | which sides are there | what comes on the side | what side dishes
    do you have | tell me the sides | what can I get on the side | any sides
""")
BURGER_LIST: Final = _of("""
    what burgers do you have | which burgers are there | what kinds of burgers do you have |
    tell me about your burgers | what sort of burgers do you make | which burger can I get
""")
SWEET_LIST: Final = _of("""
    what desserts do you have | do you have anything sweet | what is there for dessert | any
    desserts | what sweets do you have | I want something sweet | what can I get for dessert
""")
SANDWICH_LIST: Final = _of("""
    what sandwiches do you have | which sandwiches are there | do you have sandwiches | what
    kind of sandwiches do you make | any sandwiches
""")
GREEN_LIST: Final = _of("""
    what do you have that is vegetarian | do you have anything without meat | I'm vegetarian |
    is there something vegetarian | what can a vegetarian eat here | anything vegetarian
""")
SIZE_LIST: Final = _of("""
    what sizes do you have | which sizes are there | what sizes are the drinks | how big are
    your drinks | what sizes do the fries come in | tell me the sizes | what are the sizes |
    which sizes do you offer | how many sizes are there | what sizes do drinks come in | what
    drink sizes are there | what size cups do you have | how large are the drinks | do the
    drinks come in different sizes | which cup sizes can I get | what sizes can I get | in what
    sizes do you sell the sides | what sizes are the sides
""")
NO_SUCH_SIZE: Final = _of("""
    an extra large {} | a huge {} | a jumbo {} | a gallon of {} | a tiny {}
""")
RECOMMEND: Final = _of("""
    what do you recommend | what is good here | what should I get | what's your best burger |
    what is popular | I don't know what to order | what would you take | any suggestions
""")
EXTRA_PRICE: Final = _of("""
    how much is {} | does {} cost more | what does {} cost | do you charge for {} | is {} free |
    how much do you charge for {} | what's the price of {}
""")

TOTAL: Final = _of("""
    how much is that | what's my total | how much is it | what do I owe you | what's the total |
    how much does that come to | how much is everything | how much will that be | what does it
    all cost | how much so far | what is the total so far | what's that altogether | can I get
    my total | and the total | how much do I have to pay | what's the damage | tell me the total
    | how much money is that | what is it going to cost me | total please | how much am I at |
    what would that be in total | give me the price for all of it | what's the bill | how much
    is the bill | add it up for me | what do I have to pay | how much do you want from me |
    where does that put me | what's the price so far | what's the sum | how many dollars is it
    so far | how much have I spent | let me know the total | what is all of it together | and
    what does that make | what would I pay now | how much do we owe
""")
READ_BACK: Final = _of("""
    what do I have so far | can you repeat my order | what did I order | read my order back |
    what's on my order | can you read that back to me | what have I got | say my order again |
    could you repeat the order | what do you have down for me | what is my order | can you tell
    me what I ordered | did you get all of that | let me hear my order | what have I ordered so
    far | is my order right | go over my order please | my order so far | can you check my order
    | remind me what I ordered | what's in there so far | can you say everything again | what
    did you write down | list my order | what's in my order so far | tell me my order | what do
    we have so far | repeat the whole order | just to be sure, what did I order | let's go over
    the order | run through the order for me | what am I getting | what is on the list | what
    are we having
""")
HOW_MANY: Final = _of("""
    how many {} did I order | how many {} do I have | how many {} have I got | how many {} are
    on my order | how many {} is that | and how many {} did you get | how many {} did I ask for
    | how many {} are in there | what number of {} do you have | did you put down how many {}
""")
IS_IN: Final = _of("""
    did you get {} | do you have {} down | did I order {} | is {} on there | did you add {} |
    have you got {} on my order | is {} on the order | you got {}, right
""")
PARDON: Final = _of("""
    what did you say | sorry, what | pardon | can you say that again | I didn't hear you | could
    you repeat that | excuse me | sorry I didn't catch that | what was that | huh | say again |
    I can't hear you | can you speak up | sorry what was that
""")

INSTEAD_LAST: Final = _of("""
    make that {} instead | actually, make it {} | change that to {} please | no, I meant {} |
    sorry, I'd rather have {} | can you change that to {} | wait, make that {} | no, {} |
    actually {} | no wait, {} | I said {} | sorry, I meant {} | make it {} | no, {} please | I
    changed my mind, {} instead | can I have {} instead | let's make that {} | {} instead |
    actually can you make that {} | that should be {} | hold on, make it {} | not that, {} |
    could you make it {} please | I want {} instead | oh sorry, {} | I'd prefer {} instead
""")
INSTEAD_OF: Final = _of("""
    change {old} to {new} | can you change {old} to {new} | {new} instead of {old} | instead of
    {old} I want {new} | switch {old} to {new} | replace {old} with {new} | I'd like {new}
    instead of {old} | make {old} {new} | can I have {new} instead of {old} | not {old}, {new} |
    trade {old} for {new} | actually make {old} {new} | turn {old} into {new} | I want {new},
    not {old} | exchange {old} for {new} | take off {old} and add {new} | remove {old} and give
    me {new} | no {old}, I want {new} | could you make {old} {new} | instead of {old} give me
    {new} | can we do {new} instead of {old} | drop {old}, add {new} | put {new} in place of
    {old} | I'd take {new} over {old} | give me {new} and no {old} | let me have {new} instead
    of {old} | {old} becomes {new} | could you trade {old} for {new}
""")
RESIZED: Final = _of("""
    make {} {size} | can you make {} {size} | change {} to {size} | make {} a {size} | actually
    make {} a {size} one | I want {} in {size} | {} should be {size} please | can I get {} in
    {size} instead | {size} for {} please | could {} be {size} | make it a {size} for {} | I
    meant {size} for {} | can {} be a {size} | switch {} to {size} | get {} in {size} | I'd
    rather have {} in {size} | {} has to be {size} | let {} be {size} | take {size} for {} |
    turn {} into a {size} one
""")
RESIZED_LAST: Final = _of("""
    make it {size} | actually {size} | make that a {size} | no, {size} | I meant {size} | sorry,
    {size} | can you make it {size} | wait, {size} please | change it to {size} | actually make
    that {size} | a {size} one instead | {size} instead please | no, a {size} one
""")
RECOUNTED: Final = _of("""
    make that {count} {} | actually {count} {} | change {} to {count} | make it {count} {} | I
    only want {count} {} | can you make {} {count} | I want {count} {} in total | no, {count} {}
    | {count} {} instead | let's do {count} {} instead | it should be {count} {} | raise {} to
    {count} | lower {} to {count} | cut {} to {count} | increase {} to {count} | reduce {} to
    {count} | I'd like {count} {} instead | let {} be {count} | turn {} into {count} | we need
    {count} {}, not more
""")
RECOUNTED_LAST: Final = _of("""
    make that {count} | actually {count} | make it {count} | no, {count} | I meant {count} |
    change that to {count} | sorry, {count} | {count} instead | wait, make that {count} | can
    you make it {count} | actually make that {count} please | I said {count} | let it be {count}
    | {count} of them, actually | we need {count} of those | let's say {count} instead | raise
    it to {count}
""")
ADJUSTED: Final = _of("""
    {change} on {} | can I get {} with {change} | {change} on {} please | make {} with {change}
    | could {} be with {change} | can {} have {change} | I want {} with {change} | for {},
    {change} | and {change} on {} | {} should have {change} | put {change} on {} | I need {}
    with {change} | can you do {} with {change} | please make {} with {change} | {} with
    {change}, please | do {} with {change} | oh, {} should come with {change} | I'd like
    {change} on {}
""")
ADJUSTED_LAST: Final = _of("""
    with {change} | {change} please | {change} on that | can I get that with {change} | actually
    with {change} | make that with {change} | {change} on that please | and {change} | could
    that be with {change} | oh, with {change} | {change} | can you do that with {change}
""")
WITHOUT: Final = _of("""
    remove {} | take off {} please | cancel {} | no {} after all | delete {} | drop {} | I don't
    want {} anymore | can you take {} off | forget {} | please remove {} | skip {} | leave out
    {} | actually I don't need {} | can you remove {} | take {} off my order | never mind {} | I
    changed my mind about {} | without {} please | get rid of {} | scratch {} | could you cancel
    {} | I don't want {} | we don't need {} | not {} after all | strike {} | nix {} | toss {} |
    I'll pass on {} | we can do without {} | take {} out | let's not have {} | kill {} | hold {}
    | no more {}, please | you can drop {} | I changed my mind, no {}
""")
WITHOUT_LAST: Final = _of("""
    take that off | cancel that | remove the last one | actually never mind that | forget the
    last one | no, take that back | cancel the last thing | I don't want that
""")
WITHOUT_ALL: Final = _of("""
    cancel my order | start over | remove everything | cancel everything | forget it all | can
    we start again | delete my order | I want to start over | clear my order please
""")
ONE_LESS: Final = _of("""
    take one {} off | remove one {} | one {} less please | one less {} | cancel one {} | can you
    take off one {} | I want one {} less | drop one of the {} | remove one of the {}
""")
ONE_MORE: Final = _of("""
    another {} | one more {} | one more {} please | can I get another {} | add another {} | I'll
    have one more {} | and another {} | give me another {} | make it one more {}
""")

HELLO: Final = _of("""
    hi | hello | hey there | good evening | good morning | hello there | hey | hi there | good
    afternoon | hi, how are you | hello hello | hi I'd like to order | I want to order | can I
    order | I'd like to place an order | are you open | can I order here | howdy | hello, I want
    to order some food | hi, can you take my order | ready to order | I'm hungry
""")
CAN_YOU_HEAR: Final = _of("""
    can you hear me | hello, is anyone there | are you there | hello, anybody there
""")
DONE: Final = _of("""
    that's all | no, that's it | that will be all, thanks | no thanks, that is everything | no
    thanks, that is all | no, I'm good | that's it, thank you | no | nothing else | nope | no
    thank you | that's everything | I'm done | we're good | no more | that is all for me | no
    that's all thank you | nothing more | I think that's it | no, nothing else | I'm all set |
    that's all for today | okay that's it | that'll do | that should be it | no, we're done | no
    that's it for me | just that | only that | that's the whole order | I'm finished | all done
    | we're done | that completes it | no thanks | nah, that's it | nah | I'm good | okay, I'll
    leave it at that | then that's it | fine, that's all | we have everything | leave it like
    that | okay, done | perfect, that's all | great, that's everything | ready to pay | that's
    the lot | ring me up | we can stop there | finish my order please | close it out | we've got
    what we need | that covers it | I have all I need | and that's me done | end of order |
    nothing more for me | no, we have it all | we'll stop here | okay, let's pay | enough for
    now | that's plenty | that makes it complete | you can total it | that's my order | I don't
    need more | all good, thanks | there's nothing else | done ordering | no more, thank you |
    let's finish | that finishes it | and we're complete | good, that's it then
""")
AND_DONE: Final = _of("""
    {} and that's all | {}, that's it | just {} and that's everything | {} and I'm done | I'll
    have {} and that's it | {}, nothing else | can I get {} and that will be all
""")
THANKS: Final = _of("""
    thank you | thanks | thanks a lot | thank you very much | okay, thank you, bye | bye |
    great, thanks | perfect | have a nice day | awesome, thank you | cheers | goodbye
""")
YES_ALONE: Final = _of("""
    yes | yes please | yeah | yes, one more thing | sure | yep | yes, something else | actually
    yes | yes, wait | I want something else | yes I would | yeah, one more thing | yes there is
    more | I'm not done | I have more | yes, I want more | okay, yes | there's one more thing |
    yes, I need something else | that's not all | let me add something | wait, I want more | I'd
    like more | hold on, there's more | yes, add something | oh yes | yeah, I'm not finished |
    there is one other thing | I forgot something
""")
WAIT: Final = _of("""
    one moment | hold on | give me a second | wait | let me think | just a minute | I'm still
    thinking | hang on | give me a minute please | one second | I need a moment
""")
UNCLEAR: Final = _of("""
    the uh | and then the | I want the | can I get a | I would like | mm | so the the | give me
    | what the of | could I | and a | is the | I think the one with | you know the
""")
PAY: Final = _of("""
    can I pay by card | where do I pay | do you take cash | do you take cards | how do I pay |
    can I pay with my phone | is it okay to pay in cash | where can I pay
""")

_TOPICS = _of("""
    the moon | history | football | my homework | the president | Paris | dinosaurs | physics |
    the stock market | my taxes | Shakespeare | guitars | cats | the universe | World War Two |
    computers | my car | basketball | China | the ocean | black holes
""")
_DOINGS = _of("""
    tell me a joke | sing a song | call my mother | book a flight | write a poem | dance | play
    some music | set an alarm | send an email | translate this | turn on the lights | find me a
    hotel | do my homework | count to ten | tell me a story | speak Spanish | order me a taxi |
    fix my phone | help me with math | wash my car | tell me a secret
""")
_ABOUT = _of("""
    tell me about {} | what do you know about {} | can you help me with {} | explain {}
""")
_DO = _of("""
    can you {} | please {} | could you {} for me | I want you to {} | will you {} | {}
""")
_SUMS = _of("""
    what is {} plus {} | what's {} times {} | {} minus {} | how much is {} and {}
""")
_NUMBERS = _of("""
    two | three | seven | ten | 12 | 25 | nine | 100
""")
_CHAT = _of("""
    who are you | what is your name | are you a robot | what time is it | who made you | what's
    the weather like | who won the game last night | where is the nearest gas station | do you
    like music | what day is today | what is the capital of France | do you love me | where are
    you from | how old are you | what time do you close | do you have a restroom | is it going
    to rain | what's the meaning of life | how tall is Mount Everest | are you human | who is
    the king of England | what's the news | are you hiring | do you have wifi | how do I get to
    the airport | what's the fastest car | who wrote Hamlet | can I park here | what's your
    favorite movie | is this a bank | how far is the moon | do you speak French | who discovered
    America | which team is the best | what is two hundred divided by four | do you know any
    songs | what did you do yesterday | is there a god | I lost my keys | my dog is sick | I had
    a terrible day | are you married | how does a phone work
""")
ELSEWHERE: Final = (
    *_CHAT,
    *_CHAT,
    *(form.format(topic) for form in _ABOUT for topic in _TOPICS),
    *(form.format(doing) for form in _DO for doing in _DOINGS),
    *(form.format(one, two) for form in _SUMS for one in _NUMBERS[:4] for two in _NUMBERS[4:]),
)
